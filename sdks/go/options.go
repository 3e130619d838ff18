package sandbox

import "time"

// An Option changes how a sandbox is made or found.
type Option func(*settings)

type settings struct {
	engine                         *Engine
	engineConfig                   EngineConfig
	namespace, name, image         string
	env, labels, annotations       map[string]string
	cpu, memory, disk              string
	volumes                        []volume
	command                        []string
	usesImageCommand               bool
	workdir, runtime, suspension   string
	startPolicy, selector          string
	ttl, autoSuspend, readyTimeout time.Duration
	podTemplate, spec              map[string]any
	allNamespaces                  bool
}

type volume struct{ path, size string }

// An image of a gigabyte over a slow line takes minutes; longer than that, a user wants to know.
const readyTimeoutDefault = 3 * time.Minute

func settingsOf(options []Option) (*settings, error) {
	s := &settings{readyTimeout: readyTimeoutDefault}
	for _, option := range options {
		option(s)
	}
	if s.engine == nil {
		found, err := FindEngine(s.engineConfig)
		if err != nil {
			return nil, err
		}
		s.engine = found
	}
	s.namespace = firstOf(s.namespace, environmentNamespace(), s.engine.Namespace())
	return s, nil
}

// WithEngine names the engine; default: FindEngine's choice.
func WithEngine(engine *Engine) Option { return func(s *settings) { s.engine = engine } }

// WithEngineConfig says how to find the engine.
func WithEngineConfig(config EngineConfig) Option {
	return func(s *settings) { s.engineConfig = config }
}

// WithNamespace names the namespace; default: AGENT_SANDBOX_NAMESPACE, then the engine's.
func WithNamespace(namespace string) Option { return func(s *settings) { s.namespace = namespace } }

// WithName names the sandbox or claim; default: a random name.
func WithName(name string) Option { return func(s *settings) { s.name = name } }

// WithImage names an OCI image; default `host` on the one-machine engine: this machine's own /usr, read-only.
func WithImage(image string) Option { return func(s *settings) { s.image = image } }

// WithEnv sets the sandbox's environment, seen by every command.
func WithEnv(env map[string]string) Option { return func(s *settings) { s.env = env } }

// WithCPU limits processor time, as a Kubernetes quantity: "500m", "2".
func WithCPU(quantity string) Option { return func(s *settings) { s.cpu = quantity } }

// WithMemory limits memory, as a Kubernetes quantity: "512Mi".
func WithMemory(quantity string) Option { return func(s *settings) { s.memory = quantity } }

// WithDisk limits what may be written outside volumes: "1Gi".
func WithDisk(quantity string) Option { return func(s *settings) { s.disk = quantity } }

// WithVolume adds storage that outlives suspension, mounted at path, of a size such as "10Gi".
func WithVolume(path, size string) Option {
	return func(s *settings) { s.volumes = append(s.volumes, volume{path, size}) }
}

// WithCommand gives the sandbox a long-running process of its own; default: none, it waits for commands.
func WithCommand(argv ...string) Option { return func(s *settings) { s.command = argv } }

// WithImageCommand runs what the image says.
func WithImageCommand() Option { return func(s *settings) { s.usesImageCommand = true } }

// WithWorkdir sets the working directory of the sandbox and its commands.
func WithWorkdir(path string) Option { return func(s *settings) { s.workdir = path } }

// WithTTL deletes the sandbox after this long; default: never.
func WithTTL(ttl time.Duration) Option { return func(s *settings) { s.ttl = ttl } }

// WithAutoSuspend puts the sandbox to sleep after this long without activity; traffic wakes it.
func WithAutoSuspend(after time.Duration) Option { return func(s *settings) { s.autoSuspend = after } }

// WithSuspensionStrategy chooses what sleep does to processes: "Stop", "Freeze" or "Hibernate".
func WithSuspensionStrategy(strategy string) Option {
	return func(s *settings) { s.suspension = strategy }
}

// WithRuntime names the runtime class; default: the engine's.
func WithRuntime(class string) Option { return func(s *settings) { s.runtime = class } }

// WithLabels sets labels of the Sandbox or claim.
func WithLabels(labels map[string]string) Option { return func(s *settings) { s.labels = labels } }

// WithAnnotations sets annotations of the Sandbox.
func WithAnnotations(annotations map[string]string) Option {
	return func(s *settings) { s.annotations = annotations }
}

// WithReadyTimeout limits how long the sandbox may take to become ready; default three minutes. Zero: do not wait.
func WithReadyTimeout(limit time.Duration) Option {
	return func(s *settings) { s.readyTimeout = limit }
}

// WithStartPolicy says how a claim may be met: "WarmOrCold", "WarmOnly" or "ColdOnly".
func WithStartPolicy(policy string) Option { return func(s *settings) { s.startPolicy = policy } }

// WithPodTemplate lays fields under everything else: those of the Pod that have no option here. Of its containers, the first is the
// sandbox's own.
func WithPodTemplate(template map[string]any) Option {
	return func(s *settings) { s.podTemplate = template }
}

// WithSpec lays fields over the Sandbox's spec.
func WithSpec(spec map[string]any) Option { return func(s *settings) { s.spec = spec } }

// WithSelector makes List yield only what a label selector matches.
func WithSelector(selector string) Option { return func(s *settings) { s.selector = selector } }

// WithAllNamespaces makes List look everywhere.
func WithAllNamespaces() Option { return func(s *settings) { s.allNamespaces = true } }
