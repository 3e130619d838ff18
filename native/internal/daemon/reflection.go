package daemon

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	reflectionv1 "agent-sandbox.dev/native/internal/gen/grpc/reflection/v1"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// reflectionAlphaName is the service's name before it was final; tools that ask for it send the same bytes.
const reflectionAlphaName = "grpc.reflection.v1alpha.ServerReflection"

// reflection is the standard gRPC reflection service. It hands out the descriptions that the stubs carry as they are: a library
// that takes descriptions apart and puts them together again costs more memory than everything else here that starts.
type reflection struct{ services []string }

// ServerReflectionInfo answers one question after the other; a file that was sent on the stream is not sent again as the import of
// another.
func (r *reflection) ServerReflectionInfo(_ context.Context, stream *connect.BidiStream[reflectionv1.ServerReflectionRequest, reflectionv1.ServerReflectionResponse]) error {
	sent := map[string]bool{}
	for {
		request, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		response, err := r.answer(request, sent)
		if err != nil {
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func (r *reflection) answer(request *reflectionv1.ServerReflectionRequest, sent map[string]bool) (*reflectionv1.ServerReflectionResponse, error) {
	response := &reflectionv1.ServerReflectionResponse{ValidHost: request.GetHost(), OriginalRequest: request}
	var files [][]byte
	var failure error
	switch asked := request.GetMessageRequest().(type) {
	case *reflectionv1.ServerReflectionRequest_ListServices:
		list := &reflectionv1.ListServiceResponse{}
		for _, name := range r.services {
			list.Service = append(list.Service, &reflectionv1.ServiceResponse{Name: name})
		}
		response.MessageResponse = &reflectionv1.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: list}
		return response, nil
	case *reflectionv1.ServerReflectionRequest_FileByFilename:
		files, failure = filesOfPath(asked.FileByFilename, sent)
	case *reflectionv1.ServerReflectionRequest_FileContainingSymbol:
		files, failure = filesOfSymbol(asked.FileContainingSymbol, sent)
	case *reflectionv1.ServerReflectionRequest_FileContainingExtension:
		// None of the protos here has extensions.
		failure = protoregistry.NotFound
	case *reflectionv1.ServerReflectionRequest_AllExtensionNumbersOfType:
		if _, failure = protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(asked.AllExtensionNumbersOfType)); failure == nil {
			numbers := &reflectionv1.ExtensionNumberResponse{BaseTypeName: asked.AllExtensionNumbersOfType}
			response.MessageResponse = &reflectionv1.ServerReflectionResponse_AllExtensionNumbersResponse{AllExtensionNumbersResponse: numbers}
			return response, nil
		}
	default:
		return nil, errors.New("a reflection request must ask something")
	}
	if failure != nil {
		missing := &reflectionv1.ErrorResponse{ErrorCode: int32(connect.CodeNotFound), ErrorMessage: failure.Error()}
		response.MessageResponse = &reflectionv1.ServerReflectionResponse_ErrorResponse{ErrorResponse: missing}
		return response, nil
	}
	found := &reflectionv1.FileDescriptorResponse{FileDescriptorProto: files}
	response.MessageResponse = &reflectionv1.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: found}
	return response, nil
}

func filesOfPath(path string, sent map[string]bool) ([][]byte, error) {
	file, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return nil, err
	}
	return withImports(file, sent)
}

func filesOfSymbol(name string, sent map[string]bool) ([][]byte, error) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, err
	}
	return withImports(found.ParentFile(), sent)
}

// withImports describes a file and, after it, those of its imports that were not sent yet.
func withImports(file protoreflect.FileDescriptor, sent map[string]bool) ([][]byte, error) {
	description, err := fileOfStubs(file)
	if err != nil {
		return nil, err
	}
	sent[file.Path()] = true
	files := [][]byte{description}
	for i := range file.Imports().Len() {
		imported := file.Imports().Get(i).FileDescriptor
		if sent[imported.Path()] {
			continue
		}
		more, err := withImports(imported, sent)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// fileOfStubs returns a file as its stubs were made from it: each of their messages hands it out, compressed.
func fileOfStubs(file protoreflect.FileDescriptor) ([]byte, error) {
	if file.Messages().Len() == 0 {
		return nil, fmt.Errorf("%s has no messages", file.Path())
	}
	message, err := protoregistry.GlobalTypes.FindMessageByName(file.Messages().Get(0).FullName())
	if err != nil {
		return nil, err
	}
	stub, ok := message.Zero().Interface().(interface{ Descriptor() ([]byte, []int) })
	if !ok {
		return nil, fmt.Errorf("%s is not described", file.Path())
	}
	compressed, _ := stub.Descriptor()
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
