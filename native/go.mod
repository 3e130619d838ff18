module agent-sandbox.dev/native

go 1.26.0
