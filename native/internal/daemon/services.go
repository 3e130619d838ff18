package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"

	healthv1 "agent-sandbox.dev/native/internal/gen/grpc/health/v1"
	"agent-sandbox.dev/native/internal/gen/grpc/health/v1/healthv1connect"
	"agent-sandbox.dev/native/internal/gen/grpc/reflection/v1/reflectionv1connect"
	"agent-sandbox.dev/native/internal/gen/process/v1/processv1connect"
	"agent-sandbox.dev/native/internal/gen/watcher/v1/watcherv1connect"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
	"connectrpc.com/connect"
)

// newServices lists every RPC service by its path. Each is made when it is first asked for: the descriptions of its messages, which
// that takes, stay in memory.
func (s *Server) newServices(options ...connect.HandlerOption) map[string]func() http.Handler {
	reflector := &reflection{services: []string{
		processv1connect.ProcessServiceName, watcherv1connect.FileWatcherServiceName,
		agentsandboxv1connect.ProcessServiceName, agentsandboxv1connect.FileServiceName, healthv1connect.HealthName,
	}}
	services := map[string]func() http.Handler{}
	add := func(name string, open func() (string, http.Handler)) {
		services["/"+name+"/"] = sync.OnceValue(func() http.Handler { _, handler := open(); return handler })
	}
	add(processv1connect.ProcessServiceName, func() (string, http.Handler) {
		return processv1connect.NewProcessServiceHandler(&publishedProcesses{server: s}, options...)
	})
	add(watcherv1connect.FileWatcherServiceName, func() (string, http.Handler) {
		return watcherv1connect.NewFileWatcherServiceHandler(&publishedWatcher{root: s.options.Root}, options...)
	})
	add(agentsandboxv1connect.ProcessServiceName, func() (string, http.Handler) {
		return agentsandboxv1connect.NewProcessServiceHandler(&processes{server: s}, options...)
	})
	add(agentsandboxv1connect.FileServiceName, func() (string, http.Handler) {
		return agentsandboxv1connect.NewFileServiceHandler(&fileService{space: s.system}, options...)
	})
	add(healthv1connect.HealthName, func() (string, http.Handler) {
		return healthv1connect.NewHealthHandler(&health{closing: &s.closing}, options...)
	})
	add(reflectionv1connect.ServerReflectionName, func() (string, http.Handler) {
		return reflectionv1connect.NewServerReflectionHandler(reflector, options...)
	})
	add(reflectionAlphaName, func() (string, http.Handler) {
		return "", connect.NewBidiStreamHandler("/"+reflectionAlphaName+"/ServerReflectionInfo", reflector.ServerReflectionInfo, options...)
	})
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
