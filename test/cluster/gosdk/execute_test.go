package gosdk

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// executed is an ExecuteResponse.
type executed struct {
	code           int
	stdout, stderr string
}

// rawCodec passes messages as they are: this module has no stubs of the published service, and needs two messages of it.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) ([]byte, error) {
	raw, ok := message.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("cannot encode %T", message)
	}
	return *raw, nil
}

func (rawCodec) Unmarshal(wire []byte, message any) error {
	raw, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot decode %T", message)
	}
	*raw = append([]byte(nil), wire...)
	return nil
}

// execute is one unary call, in clear text and without any credential, as the SDK makes it.
func execute(t *testing.T, address string, command ...string) executed {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	var config []byte
	for _, word := range command {
		config = protowire.AppendString(protowire.AppendTag(config, 1, protowire.BytesType), word)
	}
	asked := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), config)
	var answer []byte
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	must(t, connection.Invoke(ctx, "/process.v1.ProcessService/Execute", &asked, &answer, grpc.ForceCodec(rawCodec{})))
	return parseExecuted(t, answer)
}

func parseExecuted(t *testing.T, wire []byte) executed {
	t.Helper()
	var reply executed
	for len(wire) > 0 {
		number, kind, size := protowire.ConsumeTag(wire)
		must(t, protowire.ParseError(size))
		wire = wire[size:]
		value := 0
		switch {
		case number == 1 && kind == protowire.VarintType:
			code, used := protowire.ConsumeVarint(wire)
			reply.code, value = int(code), used
		case number == 2:
			text, used := protowire.ConsumeBytes(wire)
			reply.stdout, value = string(text), used
		case number == 3:
			text, used := protowire.ConsumeBytes(wire)
			reply.stderr, value = string(text), used
		default:
			value = protowire.ConsumeFieldValue(number, kind, wire)
		}
		must(t, protowire.ParseError(value))
		wire = wire[value:]
	}
	return reply
}
