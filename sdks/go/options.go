package sandbox

import "time"

// CreateOption is an option of Create. Every call has a type of its own for its options, so that the compiler refuses what the call
// would ignore; most options are options of several calls.
type CreateOption interface{ create(*settings) }

// OpenOption is an option of Open.
type OpenOption interface{ open(*settings) }

// ClaimOption is an option of Claim.
type ClaimOption interface{ claim(*settings) }

// GetOption is an option of Get.
type GetOption interface{ get(*settings) }

// ListOption is an option of List.
type ListOption interface{ list(*settings) }

// FromOption is an option of From.
type FromOption interface{ from(*settings) }

// EngineOption says which engine is meant: an option of every call.
type EngineOption func(*settings)

func (o EngineOption) create(s *settings) { o(s) }
func (o EngineOption) open(s *settings)   { o(s) }
func (o EngineOption) claim(s *settings)  { o(s) }
func (o EngineOption) get(s *settings)    { o(s) }
func (o EngineOption) list(s *settings)   { o(s) }
func (o EngineOption) from(s *settings)   { o(s) }

// NamespaceOption is an option of every call but From, whose handle names the namespace.
type NamespaceOption func(*settings)

func (o NamespaceOption) create(s *settings) { o(s) }
func (o NamespaceOption) open(s *settings)   { o(s) }
func (o NamespaceOption) claim(s *settings)  { o(s) }
func (o NamespaceOption) get(s *settings)    { o(s) }
func (o NamespaceOption) list(s *settings)   { o(s) }

// NameOption is an option of Create and Claim; Open has the name as an argument.
type NameOption func(*settings)

func (o NameOption) create(s *settings) { o(s) }
func (o NameOption) claim(s *settings)  { o(s) }

// StartOption is an option of the calls that wait for a sandbox: Create, Open and Claim.
type StartOption func(*settings)

func (o StartOption) create(s *settings) { o(s) }
func (o StartOption) open(s *settings)   { o(s) }
func (o StartOption) claim(s *settings)  { o(s) }

// MakeOption says what is made: an option of Create and Open.
type MakeOption func(*settings)

func (o MakeOption) create(s *settings) { o(s) }
func (o MakeOption) open(s *settings)   { o(s) }

// ClaimOnlyOption is an option of Claim alone.
type ClaimOnlyOption func(*settings)

func (o ClaimOnlyOption) claim(s *settings) { o(s) }

// ListOnlyOption is an option of List alone.
type ListOnlyOption func(*settings)

func (o ListOnlyOption) list(s *settings) { o(s) }

type settings struct {
	engine                         *Engine
	engineOptions                  EngineOptions
	namespace, name, image         string
	fromSnapshot                   string
	inherited                      map[string]any
	env, labels, annotations       map[string]string
	cpu, memory, disk              string
	volumes                        []Volume
	command                        []string
	usesImageCommand               bool
	workdir, runtime, suspension   string
	startPolicy, selector          string
	wakePolicy                     string
	podFailure                     *PodFailurePolicy
	ttl, autoSuspend, readyTimeout time.Duration
	hibernateAfter                 time.Duration
	podTemplate, spec              map[string]any
	allNamespaces                  bool
}

// Volume is storage that outlives suspension.
type Volume struct {
	// Path is where it is mounted.
	Path string
	// Size is a Kubernetes quantity, for example "10Gi".
	Size string
	// StorageClass is the cluster's default where it is empty.
	StorageClass string
}

// An image of a gigabyte over a slow line takes minutes; longer than that, a user wants to know.
const readyTimeoutDefault = 3 * time.Minute

// settingsOf applies the options of one call; apply is that call's method of them.
func settingsOf[T any](options []T, apply func(T, *settings)) (*settings, error) {
	s := &settings{readyTimeout: readyTimeoutDefault}
	for _, option := range options {
		apply(option, s)
	}
	if s.engine == nil {
		found, err := FindEngine(s.engineOptions)
		if err != nil {
			return nil, err
		}
		s.engine = found
	}
	s.namespace = firstOf(s.namespace, environmentNamespace(), s.engine.Namespace())
	return s, nil
}

// WithEngine names the engine; default: FindEngine's choice.
func WithEngine(engine *Engine) EngineOption { return func(s *settings) { s.engine = engine } }

// WithEngineOptions says how to find the engine.
func WithEngineOptions(config EngineOptions) EngineOption {
	return func(s *settings) { s.engineOptions = config }
}

// WithNamespace names the namespace; default: AGENT_SANDBOX_NAMESPACE, then the engine's.
func WithNamespace(namespace string) NamespaceOption {
	return func(s *settings) { s.namespace = namespace }
}

// WithName names the sandbox or claim; default: a random name.
func WithName(name string) NameOption { return func(s *settings) { s.name = name } }

// WithImage names an OCI image; default `host` on the one-machine engine: this machine's own /usr, read-only.
func WithImage(image string) MakeOption { return func(s *settings) { s.image = image } }

// WithFromSnapshot starts from a snapshot; without WithImage, what runs is taken from the sandbox that it was taken of.
func WithFromSnapshot(name string) MakeOption { return func(s *settings) { s.fromSnapshot = name } }

// WithEnv sets the sandbox's environment, seen by every command.
func WithEnv(env map[string]string) StartOption { return func(s *settings) { s.env = env } }

// WithCPU limits processor time, as a Kubernetes quantity: "500m", "2".
func WithCPU(quantity string) MakeOption { return func(s *settings) { s.cpu = quantity } }

// WithMemory limits memory, as a Kubernetes quantity: "512Mi".
func WithMemory(quantity string) MakeOption { return func(s *settings) { s.memory = quantity } }

// WithDisk limits what may be written outside volumes: "1Gi".
func WithDisk(quantity string) MakeOption { return func(s *settings) { s.disk = quantity } }

// WithVolumes adds storage that outlives suspension.
func WithVolumes(volumes ...Volume) MakeOption {
	return func(s *settings) { s.volumes = append(s.volumes, volumes...) }
}

// WithCommand gives the sandbox a long-running process of its own; default: none, it waits for commands.
func WithCommand(argv ...string) MakeOption { return func(s *settings) { s.command = argv } }

// WithImageCommand runs what the image says.
func WithImageCommand() MakeOption { return func(s *settings) { s.usesImageCommand = true } }

// WithWorkdir sets the working directory of the sandbox and its commands.
func WithWorkdir(path string) MakeOption { return func(s *settings) { s.workdir = path } }

// WithTTL deletes the sandbox after this long; default: never.
func WithTTL(ttl time.Duration) StartOption { return func(s *settings) { s.ttl = ttl } }

// WithAutoSuspend puts the sandbox to sleep after this long without activity; traffic wakes it.
func WithAutoSuspend(after time.Duration) MakeOption {
	return func(s *settings) { s.autoSuspend = after }
}

// WithSuspensionStrategy chooses what sleep does to processes: "Stop", "Freeze" or "Hibernate".
func WithSuspensionStrategy(strategy string) MakeOption {
	return func(s *settings) { s.suspension = strategy }
}

// WithHibernateAfter hibernates a frozen sandbox after this long without activity; with WithAutoSuspend and the strategy "Freeze".
func WithHibernateAfter(after time.Duration) MakeOption {
	return func(s *settings) { s.hibernateAfter = after }
}

// WithWakePolicy says whether traffic wakes a sandbox that sleeps: "OnTraffic" or "Never". Default: "OnTraffic" with WithAutoSuspend,
// else "Never".
func WithWakePolicy(policy string) MakeOption {
	return func(s *settings) { s.wakePolicy = policy }
}

// PodFailurePolicy says what becomes of a sandbox whose Pod fails.
type PodFailurePolicy struct {
	// Type is "Never" or "Recreate".
	Type string `json:"type"`
	// RetriesMax is how often a failed Pod is replaced before the sandbox stays failed; zero: the engine's default, six.
	RetriesMax int `json:"retriesMax,omitempty"`
	// BackoffSeconds is the delay before the first replacement, doubling up to five minutes; zero: the engine's default, ten.
	BackoffSeconds int `json:"backoffSeconds,omitempty"`
}

// WithPodFailurePolicy says whether a Pod that failed is replaced; default: it is not.
func WithPodFailurePolicy(policy PodFailurePolicy) MakeOption {
	return func(s *settings) { s.podFailure = &policy }
}

// WithRuntime names the runtime class; default: the engine's.
func WithRuntime(class string) MakeOption { return func(s *settings) { s.runtime = class } }

// WithLabels sets labels of the Sandbox or claim.
func WithLabels(labels map[string]string) StartOption { return func(s *settings) { s.labels = labels } }

// WithAnnotations sets annotations of the Sandbox.
func WithAnnotations(annotations map[string]string) MakeOption {
	return func(s *settings) { s.annotations = annotations }
}

// WithReadyTimeout limits how long the sandbox may take to become ready; default three minutes. Zero: do not wait.
func WithReadyTimeout(limit time.Duration) StartOption {
	return func(s *settings) { s.readyTimeout = limit }
}

// WithStartPolicy says how a claim may be met: "WarmOrCold", "WarmOnly" or "ColdOnly".
func WithStartPolicy(policy string) ClaimOnlyOption {
	return func(s *settings) { s.startPolicy = policy }
}

// WithPodTemplate lays fields under everything else: those of the Pod that have no option here. Of its containers, the first is the
// sandbox's own.
func WithPodTemplate(template map[string]any) MakeOption {
	return func(s *settings) { s.podTemplate = template }
}

// WithSpec lays fields over the Sandbox's spec.
func WithSpec(spec map[string]any) MakeOption { return func(s *settings) { s.spec = spec } }

// WithLabelSelector makes List yield only what a Kubernetes label selector matches: "team=a,tier!=prod".
func WithLabelSelector(selector string) ListOnlyOption {
	return func(s *settings) { s.selector = selector }
}

// WithAllNamespaces makes List look everywhere.
func WithAllNamespaces() ListOnlyOption { return func(s *settings) { s.allNamespaces = true } }
