package daemon

import (
	"slices"
	"testing"

	reflectionv1 "agent-sandbox.dev/native/internal/gen/grpc/reflection/v1"
	"agent-sandbox.dev/native/internal/gen/grpc/reflection/v1/reflectionv1connect"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// ask puts one question on a stream of its own, by either name of the service.
func (w *world) ask(name string, requests ...*reflectionv1.ServerReflectionRequest) []*reflectionv1.ServerReflectionResponse {
	w.t.Helper()
	client := connect.NewClient[reflectionv1.ServerReflectionRequest, reflectionv1.ServerReflectionResponse](
		w.grpc, w.url+"/"+name+"/ServerReflectionInfo", connect.WithGRPC())
	stream := client.CallBidiStream(w.t.Context())
	defer stream.CloseResponse()
	var answers []*reflectionv1.ServerReflectionResponse
	for _, request := range requests {
		if err := stream.Send(request); err != nil {
			w.t.Fatal(err)
		}
		answer, err := stream.Receive()
		if err != nil {
			w.t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	stream.CloseRequest()
	return answers
}

func symbol(name string) *reflectionv1.ServerReflectionRequest {
	return &reflectionv1.ServerReflectionRequest{Host: "here", MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}}
}

// filesIn reads the files of an answer.
func filesIn(t testing.TB, answer *reflectionv1.ServerReflectionResponse) *descriptorpb.FileDescriptorSet {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	for _, bytes := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(bytes, file); err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, file)
	}
	return set
}

func TestReflectionDescribesEveryServiceThatItLists(t *testing.T) {
	w := newWorld(t)
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{ListServices: "*"}}
	for _, name := range []string{reflectionv1connect.ServerReflectionName, reflectionAlphaName} {
		services := w.ask(name, list)[0].GetListServicesResponse().GetService()
		if len(services) != 5 {
			t.Errorf("%s lists %v", name, services)
		}
		for _, service := range services {
			answer := w.ask(name, symbol(service.GetName()))[0]
			if answer.GetValidHost() != "here" || answer.GetOriginalRequest().GetFileContainingSymbol() != service.GetName() {
				t.Errorf("%s: %v", service.GetName(), answer)
			}
			// A tool makes its types of nothing else.
			files, err := protodesc.NewFiles(filesIn(t, answer))
			if err != nil {
				t.Errorf("%s: %v", service.GetName(), err)
				continue
			}
			found, err := files.FindDescriptorByName("grpc.health.v1.Health")
			if service.GetName() == "grpc.health.v1.Health" && (err != nil || found.ParentFile().Services().Get(0).Methods().Len() != 2) {
				t.Errorf("health: %v", err)
			}
		}
	}
}

func TestReflectionSendsAnImportOncePerStream(t *testing.T) {
	w := newWorld(t)
	byName := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: "google/protobuf/timestamp.proto"}}
	answers := w.ask(reflectionv1connect.ServerReflectionName, symbol("agentsandbox.v1.ProcessService"), symbol("agentsandbox.v1.Process"), byName)
	var names [][]string
	for _, answer := range answers {
		var of []string
		for _, file := range filesIn(t, answer).File {
			of = append(of, file.GetName())
		}
		names = append(names, of)
	}
	if !slices.Contains(names[0], "google/protobuf/timestamp.proto") || names[0][0] != "agentsandbox/v1/process.proto" {
		t.Errorf("first %v", names[0])
	}
	if !slices.Equal(names[1], names[0][:1]) || !slices.Equal(names[2], []string{"google/protobuf/timestamp.proto"}) {
		t.Errorf("then %v", names[1:])
	}
}

func TestReflectionSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	extension := &reflectionv1.ExtensionRequest{ContainingType: "process.v1.ProcessConfig", ExtensionNumber: 7}
	missing := []*reflectionv1.ServerReflectionRequest{
		symbol("no.such.Thing"),
		{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: "no/such.proto"}},
		{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingExtension{FileContainingExtension: extension}},
		{MessageRequest: &reflectionv1.ServerReflectionRequest_AllExtensionNumbersOfType{AllExtensionNumbersOfType: "no.such.Thing"}},
	}
	for _, answer := range w.ask(reflectionv1connect.ServerReflectionName, missing...) {
		if answer.GetErrorResponse().GetErrorCode() != int32(connect.CodeNotFound) || answer.GetErrorResponse().GetErrorMessage() == "" {
			t.Errorf("%v", answer)
		}
	}
	known := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_AllExtensionNumbersOfType{AllExtensionNumbersOfType: "process.v1.ProcessConfig"}}
	numbers := w.ask(reflectionv1connect.ServerReflectionName, known)[0].GetAllExtensionNumbersResponse()
	if numbers.GetBaseTypeName() != "process.v1.ProcessConfig" || len(numbers.GetExtensionNumber()) != 0 {
		t.Errorf("%v", numbers)
	}
	client := reflectionv1connect.NewServerReflectionClient(w.grpc, w.url)
	stream, err := client.ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(&reflectionv1.ServerReflectionRequest{})
	_, err = stream.Receive()
	expectCode(t, err, connect.CodeInvalidArgument, "must ask something")
}
