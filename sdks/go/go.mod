module agent-sandbox.dev/sdk

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	go.yaml.in/yaml/v3 v3.0.4
	google.golang.org/protobuf v1.36.12
)
