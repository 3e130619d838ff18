module agent-sandbox.dev/test/mistakes

go 1.26.0

require agent-sandbox.dev/sdk v0.1.0

require (
	connectrpc.com/connect v1.21.1 // indirect
	go.yaml.in/yaml/v3 v3.0.4 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace agent-sandbox.dev/sdk => ../../../sdks/go
