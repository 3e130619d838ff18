package daemon

import (
	"context"
	"net/http"
	"time"

	"agent-sandbox.dev/native/internal/gen/agentsandbox/v1/agentsandboxv1connect"
	healthv1 "agent-sandbox.dev/native/internal/gen/grpc/health/v1"
	"agent-sandbox.dev/native/internal/gen/grpc/health/v1/healthv1connect"
	"agent-sandbox.dev/native/internal/gen/process/v1/processv1connect"
	"agent-sandbox.dev/native/internal/gen/watcher/v1/watcherv1connect"
	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
)

// newServices makes the handler of every RPC service, by its path.
func (s *Server) newServices(options ...connect.HandlerOption) map[string]http.Handler {
	services := map[string]http.Handler{}
	add := func(path string, handler http.Handler) { services[path] = handler }
	add(processv1connect.NewProcessServiceHandler(&publishedProcesses{server: s}, options...))
	add(watcherv1connect.NewFileWatcherServiceHandler(&publishedWatcher{root: s.options.Root}, options...))
	add(agentsandboxv1connect.NewProcessServiceHandler(&processes{server: s}, options...))
	add(agentsandboxv1connect.NewFileServiceHandler(&fileService{space: s.system}, options...))
	add(healthv1connect.NewHealthHandler(&health{closing: &s.closing}, options...))
	reflector := grpcreflect.NewStaticReflector(
		processv1connect.ProcessServiceName, watcherv1connect.FileWatcherServiceName,
		agentsandboxv1connect.ProcessServiceName, agentsandboxv1connect.FileServiceName, healthv1connect.HealthName,
	)
	add(grpcreflect.NewHandlerV1(reflector, options...))
	add(grpcreflect.NewHandlerV1Alpha(reflector, options...))
	return services
}

// health is the standard gRPC health service.
type health struct{ closing *closing }

func (h *health) status() *healthv1.HealthCheckResponse {
	if h.closing.begun.Load() {
		return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}
}

// Check tells whether the daemon serves.
func (h *health) Check(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	return h.status(), nil
}

// healthLookEvery is how soon a watcher learns of a change.
const healthLookEvery = 500 * time.Millisecond

// Watch tells whether the daemon serves, and again when that changes.
func (h *health) Watch(ctx context.Context, _ *healthv1.HealthCheckRequest, stream *connect.ServerStream[healthv1.HealthCheckResponse]) error {
	ticker := time.NewTicker(healthLookEvery)
	defer ticker.Stop()
	last := h.status()
	for {
		if err := stream.Send(last); err != nil {
			return err
		}
		for current := h.status(); current.Status == last.Status; current = h.status() {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		last = h.status()
	}
}
