package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/supervise"
)

// defaultPort is where everything is served; chosen not to collide with what a user runs.
const defaultPort = "49900"

// The three ways to run.
const (
	// modeReference has the reference daemon's defaults, so that this binary can take its place.
	modeReference = ""
	modeServe     = "serve"
	modeInit      = "init"
)

// config is everything that flags and environment say.
type config struct {
	mode            string
	listen          []string
	rootDir         string
	fileSystemRoot  string
	workDir         string
	legacyDir       string
	tokenFile       string
	metadataPrefix  string
	shutdownTimeout time.Duration
	idleTimeout     time.Duration
	processesMax    int
	logDir          string
	logBytesMax     int64
	logFilesMax     int
	exitFile        string
	messageFile     string
	messageCopy     string
	terminal        bool
	stdin           bool
	services        []supervise.Service
	handshake       bool
	showVersion     bool
	command         []string
}

// environment gives flags their defaults: --log-dir is AGENT_SANDBOXD_LOG_DIR.
type environment func(string) string

func (e environment) text(flagName, fallback string) string {
	name := "AGENT_SANDBOXD_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
	if value := e(name); value != "" {
		return value
	}
	return fallback
}

func (e environment) number(flagName string, fallback int64) int64 {
	if value, err := strconv.ParseInt(e.text(flagName, ""), 10, 64); err == nil {
		return value
	}
	return fallback
}

func (e environment) truth(flagName string) bool {
	value, _ := strconv.ParseBool(e.text(flagName, ""))
	return value
}

func (e environment) duration(flagName string, fallback time.Duration) time.Duration {
	if value, err := time.ParseDuration(e.text(flagName, "")); err == nil {
		return value
	}
	return fallback
}

// parseConfig reads the command line; the environment gives the defaults.
func parseConfig(args []string, env environment, output io.Writer) (*config, error) {
	c := &config{mode: modeReference}
	if len(args) > 0 && (args[0] == modeServe || args[0] == modeInit) {
		c.mode, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("sandboxd", flag.ContinueOnError)
	flags.SetOutput(output)
	reference := c.referenceFlags(flags)
	var listen, extra, services string
	flags.StringVar(&listen, "listen", env.text("listen", ":"+defaultPort), "addresses to serve everything on, comma-separated; unix:/path for a socket; off for none")
	flags.StringVar(&extra, "extra-listen", env.text("extra-listen", ""), "further addresses")
	c.ownFlags(flags, env)
	if c.mode == modeInit {
		c.initFlags(flags, env)
		flags.StringVar(&services, "services", env.text("services", ""), "services to keep running, as a JSON list with name, command, env, cwd and user")
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if c.services, err = supervise.Parse(services); err != nil {
		return nil, err
	}
	if c.command = flags.Args(); len(c.command) > 0 && c.mode != modeInit {
		return nil, fmt.Errorf("unexpected argument %q", c.command[0])
	}
	if listen != "off" {
		c.listen = splitList(listen)
	}
	c.listen = append(c.listen, splitList(extra)...)
	published, err := reference.addresses(c.mode)
	if err != nil {
		return nil, err
	}
	c.listen = append(c.listen, published...)
	if c.metadataPrefix == "" {
		c.metadataPrefix = "SANDBOX_"
	}
	return c, nil
}

func (c *config) ownFlags(flags *flag.FlagSet, env environment) {
	flags.StringVar(&c.rootDir, "root-dir", env.text("root-dir", ""), "root of the published services (default /workspace if it exists, else the working directory)")
	flags.StringVar(&c.fileSystemRoot, "fs-root", env.text("fs-root", ""), "root of our own file service (default /; the root directory without init and serve)")
	flags.StringVar(&c.workDir, "workdir", env.text("workdir", ""), "where relative paths and processes of our own services start (default the working directory)")
	flags.StringVar(&c.legacyDir, "legacy-dir", env.text("legacy-dir", ""), "base of the legacy runtime (default SANDBOX_BASE_DIR, else /app if it exists, else the root directory)")
	flags.StringVar(&c.tokenFile, "token-file", env.text("token-file", ""), "file with the bearer tokens to accept, one per line; read again when it changes")
	flags.StringVar(&c.metadataPrefix, "metadata-env-prefix", env.text("metadata-env-prefix", "SANDBOX_"), "prefix of the variables that /v1/metadata shows")
	flags.DurationVar(&c.shutdownTimeout, "shutdown-timeout", env.duration("shutdown-timeout", 10*time.Second), "budget of a graceful stop")
	flags.DurationVar(&c.idleTimeout, "http-idle-timeout", env.duration("http-idle-timeout", time.Minute), "idle connections are closed after this")
	flags.IntVar(&c.processesMax, "processes-max", int(env.number("processes-max", 1024)), "processes at once")
	flags.BoolVar(&c.showVersion, "version", false, "print the version and exit")
}

func (c *config) initFlags(flags *flag.FlagSet, env environment) {
	flags.StringVar(&c.logDir, "log-dir", env.text("log-dir", ""), "directory for the entrypoint's log; without it output is passed through")
	flags.Int64Var(&c.logBytesMax, "log-max-bytes", env.number("log-max-bytes", 10<<20), "size at which the log is rotated")
	flags.IntVar(&c.logFilesMax, "log-max-files", int(env.number("log-max-files", 5)), "log files kept, the current one included")
	flags.StringVar(&c.exitFile, "exit-file", env.text("exit-file", ""), "file for the entrypoint's exit record")
	flags.StringVar(&c.messageFile, "message-file", env.text("message-file", ""), "file that the entrypoint may leave a last word in")
	flags.StringVar(&c.messageCopy, "message-copy", env.text("message-copy", ""), "file that the last word is copied to at the end")
	flags.BoolVar(&c.terminal, "tty", env.truth("tty"), "give the entrypoint a terminal")
	flags.BoolVar(&c.handshake, "handshake", env.truth("handshake"), "say ready on standard output once the ports are open, and start the entrypoint when go is read from standard input")
	flags.BoolVar(&c.stdin, "stdin", env.truth("stdin"), "keep the entrypoint's standard input open")
}

// reference are the flags of the reference daemon that say where it listens.
type reference struct {
	host       string
	grpc, rest int
	set        *flag.FlagSet
}

// referenceFlags accepts every flag of the reference daemon; those about its logs and chunks change nothing here.
func (c *config) referenceFlags(flags *flag.FlagSet) *reference {
	r := &reference{set: flags}
	flags.StringVar(&r.host, "listen-host", "0.0.0.0", "interface of --grpc-port and --rest-port")
	flags.IntVar(&r.grpc, "grpc-port", 9090, "port that the reference daemon serves gRPC on")
	flags.IntVar(&r.rest, "rest-port", 8080, "port that the reference daemon serves REST on")
	flags.Int("stream-chunk-size", 0, "accepted for compatibility")
	for _, name := range []string{"zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding"} {
		flags.String(name, "", "accepted for compatibility")
	}
	flags.Bool("zap-devel", false, "accepted for compatibility")
	return r
}

// addresses are bound in the reference mode, and elsewhere when one of the two ports is asked for.
func (r *reference) addresses(mode string) ([]string, error) {
	wanted := map[string]bool{"grpc-port": mode == modeReference, "rest-port": mode == modeReference}
	r.set.Visit(func(f *flag.Flag) {
		if _, ok := wanted[f.Name]; ok {
			wanted[f.Name] = true
		}
	})
	if wanted["grpc-port"] && wanted["rest-port"] && r.grpc == r.rest {
		return nil, errors.New("--grpc-port and --rest-port must differ")
	}
	var addresses []string
	for name, port := range map[string]int{"grpc-port": r.grpc, "rest-port": r.rest} {
		if !wanted[name] {
			continue
		}
		if port < 1 || port > math.MaxUint16 {
			return nil, fmt.Errorf("--%s %d is not between 1 and 65535", name, port)
		}
		addresses = append(addresses, net.JoinHostPort(r.host, strconv.Itoa(port)))
	}
	return addresses, nil
}

func splitList(list string) []string {
	var parts []string
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// resolveDirectories fills in what depends on the file system.
func (c *config) resolveDirectories() error {
	var err error
	if c.workDir == "" {
		if c.workDir, err = os.Getwd(); err != nil {
			c.workDir = "/"
		}
	}
	if c.mode == modeReference {
		if c.rootDir == "" {
			c.rootDir = "/workspace"
		}
		if c.fileSystemRoot == "" {
			// Beside a workload, the file service reaches no further than the published one.
			c.fileSystemRoot, c.workDir = c.rootDir, c.rootDir
		}
	}
	if c.rootDir == "" {
		c.rootDir = c.workDir
		if isDirectory("/workspace") {
			c.rootDir = "/workspace"
		}
	}
	if c.fileSystemRoot == "" {
		c.fileSystemRoot = "/"
	}
	return os.MkdirAll(c.rootDir, 0o755)
}

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// legacyDirectory is read per request, as the legacy runtime does.
func (c *config) legacyDirectory() string {
	if c.legacyDir != "" {
		return c.legacyDir
	}
	if base := strings.TrimSpace(os.Getenv("SANDBOX_BASE_DIR")); base != "" {
		return base
	}
	if isDirectory("/app") {
		return "/app"
	}
	return c.rootDir
}

// legacyTimeoutDefault is the legacy runtime's own.
const legacyTimeoutDefault = 300 * time.Second

func legacyTimeout() time.Duration {
	seconds, err := strconv.ParseFloat(os.Getenv("SANDBOX_EXEC_TIMEOUT_SECONDS"), 64)
	if err != nil || !(seconds > 0) || seconds > float64(math.MaxInt64)/float64(time.Second) {
		return legacyTimeoutDefault
	}
	return time.Duration(seconds * float64(time.Second))
}
