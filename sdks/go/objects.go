package sandbox

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

const (
	createdByLabel           = "agents.x-k8s.io/created-by"
	createdBy                = "go-client"
	firstRequestedAnnotation = "agents.x-k8s.io/client-first-requested-at"
	hostImage                = "host.agent-sandbox.local/usr"
)

var (
	// Waits for commands: the daemon that our node brings into every sandbox, without an entrypoint of its own.
	ownKeepAlive = []string{"/.agent-sandbox/sandboxd", "init", "--listen=off"}
	// The same on a cluster, with what nearly every image has; it ends at once on SIGTERM.
	shellKeepAlive = []string{"/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"}
)

func environmentNamespace() string { return os.Getenv("AGENT_SANDBOX_NAMESPACE") }

// shutdownTime is when something ends that lives for ttl; whole seconds, rounded up.
func shutdownTime(now time.Time, ttl time.Duration) (string, error) {
	if ttl <= 0 {
		return "", newError(errorcode.InvalidArgument, "ttl must be above 0, not %s", ttl)
	}
	end := now.Add(ttl)
	if whole := end.Truncate(time.Second); whole.Before(end) {
		end = whole.Add(time.Second)
	}
	return end.UTC().Format(time.RFC3339), nil
}

// sandboxObject makes the Sandbox for some settings.
func sandboxObject(s *settings, now time.Time, isOwnEngine bool) (map[string]any, error) {
	spec, err := programSpec(s, isOwnEngine)
	if err != nil {
		return nil, err
	}
	if s.fromSnapshot != "" {
		spec["restoreFrom"] = map[string]any{"snapshotName": s.fromSnapshot}
	}
	if s.ttl != 0 {
		if spec["shutdownTime"], err = shutdownTime(now, s.ttl); err != nil {
			return nil, err
		}
		spec["shutdownPolicy"] = "Delete"
	}
	if s.autoSuspend > 0 {
		spec["autoSuspension"] = autoSuspension(s)
	} else if s.hibernateAfter > 0 {
		return nil, newError(errorcode.InvalidArgument, "WithHibernateAfter needs WithAutoSuspend, after which the sandbox freezes")
	}
	if s.suspension != "" {
		spec["suspensionStrategy"] = map[string]any{"type": s.suspension}
	}
	if s.wakePolicy != "" {
		spec["wakePolicy"] = s.wakePolicy
	}
	if s.podFailure != nil {
		spec["podFailurePolicy"] = s.podFailure
	}
	maps.Copy(spec, s.spec)
	return map[string]any{"metadata": objectMetadata(s), "spec": spec}, nil
}

// autoSuspension has both times in whole seconds, at least one.
func autoSuspension(s *settings) map[string]any {
	seconds := func(after time.Duration) int64 { return max(1, int64(math.Round(after.Seconds()))) }
	times := map[string]any{"inactivityTimeoutSeconds": seconds(s.autoSuspend)}
	if s.hibernateAfter > 0 {
		times["hibernateAfterSeconds"] = seconds(s.hibernateAfter)
	}
	return times
}

// programSpec is the part of a Sandbox's spec that says what runs in it.
func programSpec(s *settings, isOwnEngine bool) (map[string]any, error) {
	if s.inherited != nil {
		return maps.Clone(s.inherited), nil
	}
	container, err := containerObject(s, isOwnEngine)
	if err != nil {
		return nil, err
	}
	template := maps.Clone(s.podTemplate)
	if template == nil {
		template = map[string]any{}
	}
	template["spec"] = podSpec(s, container)
	spec := map[string]any{"podTemplate": template}
	if len(s.volumes) > 0 {
		spec["volumeClaimTemplates"] = claimTemplates(s.volumes)
	}
	return spec, nil
}

func podSpec(s *settings, container map[string]any) map[string]any {
	// What runs in a sandbox is not trusted with the cluster's API.
	pod := map[string]any{"automountServiceAccountToken": false}
	given, _ := s.podTemplate["spec"].(map[string]any)
	maps.Copy(pod, given)
	if s.runtime != "" {
		pod["runtimeClassName"] = s.runtime
	}
	containers, _ := given["containers"].([]any)
	if len(containers) > 0 {
		if first, ok := containers[0].(map[string]any); ok {
			own := maps.Clone(first)
			maps.Copy(own, container)
			container = own
		}
		pod["containers"] = append([]any{container}, containers[1:]...)
		return pod
	}
	pod["containers"] = []any{container}
	return pod
}

func objectMetadata(s *settings) map[string]any {
	labels := map[string]string{}
	maps.Copy(labels, s.labels)
	labels[createdByLabel] = createdBy
	made := map[string]any{"name": s.name, "labels": labels}
	if len(s.annotations) > 0 {
		made["annotations"] = s.annotations
	}
	return made
}

func containerObject(s *settings, isOwnEngine bool) (map[string]any, error) {
	image := s.image
	if image == "" || image == "host" {
		if !isOwnEngine {
			return nil, newError(errorcode.InvalidArgument, "the image 'host' exists on the one-machine engine only; name an image")
		}
		image = hostImage
	}
	made := map[string]any{"name": "sandbox", "image": image}
	switch {
	case len(s.command) > 0:
		made["command"] = s.command
	case s.usesImageCommand:
		// A shell or an interpreter waits for input instead of ending.
		if !namesProgram(s.podTemplate) {
			made["stdin"] = true
		}
	case isOwnEngine:
		made["command"] = ownKeepAlive
	default:
		made["command"] = shellKeepAlive
	}
	if len(s.env) > 0 {
		made["env"] = variables(s.env)
	}
	limits := map[string]string{}
	for name, quantity := range map[string]string{"cpu": s.cpu, "memory": s.memory, "ephemeral-storage": s.disk} {
		if quantity != "" {
			limits[name] = quantity
		}
	}
	if len(limits) > 0 {
		made["resources"] = map[string]any{"limits": limits}
	}
	if s.workdir != "" {
		made["workingDir"] = s.workdir
	}
	var mounts []any
	for index, volume := range s.volumes {
		mounts = append(mounts, map[string]any{"name": volumeName(index), "mountPath": volume.Path})
	}
	if len(mounts) > 0 {
		made["volumeMounts"] = mounts
	}
	return made, nil
}

// namesProgram says whether the first container of a pod template has a command, arguments or a word about its input.
func namesProgram(template map[string]any) bool {
	spec, _ := template["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return false
	}
	first, _ := containers[0].(map[string]any)
	return first["command"] != nil || first["args"] != nil || first["stdin"] != nil
}

func variables(env map[string]string) []any {
	made := make([]any, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		made = append(made, map[string]any{"name": name, "value": env[name]})
	}
	return made
}

func volumeName(index int) string { return fmt.Sprintf("volume-%d", index) }

func claimTemplates(volumes []Volume) []any {
	made := make([]any, 0, len(volumes))
	for index, volume := range volumes {
		spec := map[string]any{
			"accessModes": []string{"ReadWriteOnce"},
			"resources":   map[string]any{"requests": map[string]any{"storage": volume.Size}},
		}
		if volume.StorageClass != "" {
			spec["storageClassName"] = volume.StorageClass
		}
		made = append(made, map[string]any{"metadata": map[string]any{"name": volumeName(index)}, "spec": spec})
	}
	return made
}

// claimObject makes the SandboxClaim for some settings.
func claimObject(pool string, s *settings, now time.Time) (map[string]any, error) {
	spec := map[string]any{"warmPoolRef": map[string]any{"name": pool}}
	if len(s.env) > 0 {
		spec["env"] = variables(s.env)
	}
	if s.ttl != 0 {
		end, err := shutdownTime(now, s.ttl)
		if err != nil {
			return nil, err
		}
		spec["lifecycle"] = map[string]any{"shutdownTime": end, "shutdownPolicy": "Delete"}
	}
	if s.startPolicy != "" {
		spec["startPolicy"] = s.startPolicy
	}
	made := objectMetadata(s)
	made["annotations"] = map[string]string{firstRequestedAnnotation: now.UTC().Format("2006-01-02T15:04:05.000Z")}
	return map[string]any{"metadata": made, "spec": spec}, nil
}
