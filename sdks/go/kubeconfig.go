package sandbox

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"agent-sandbox.dev/sdk/errorcode"
	"go.yaml.in/yaml/v3"
)

// credentials say how to reach and convince an API server.
type credentials struct {
	server, namespace string
	ca                []byte
	insecure          bool
	certificate       *tls.Certificate
	token             string
	// tokenFile is read for every request: tokens of a Pod are replaced while it runs.
	tokenFile string
}

func (c *credentials) bearer() string {
	if c.tokenFile == "" {
		return c.token
	}
	content, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return c.token
	}
	return strings.TrimSpace(string(content))
}

func (c *credentials) tlsConfig() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.insecure}
	if len(c.ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(c.ca)
	}
	if c.certificate != nil {
		config.Certificates = []tls.Certificate{*c.certificate}
	}
	return config
}

// kubeconfig is the part of the file that is read.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User, Namespace string }
	}
	Clusters []struct {
		Name    string
		Cluster kubeconfigCluster
	}
	Users []struct {
		Name string
		User kubeconfigUser
	}
}

type kubeconfigCluster struct {
	Server   string
	Insecure bool   `yaml:"insecure-skip-tls-verify"`
	CAFile   string `yaml:"certificate-authority"`
	CAData   string `yaml:"certificate-authority-data"`
}

type kubeconfigUser struct {
	CertificateFile string `yaml:"client-certificate"`
	CertificateData string `yaml:"client-certificate-data"`
	KeyFile         string `yaml:"client-key"`
	KeyData         string `yaml:"client-key-data"`
	Token           string
	TokenFile       string `yaml:"tokenFile"`
	Exec            *execPlugin
}

type execPlugin struct {
	APIVersion string `yaml:"apiVersion"`
	Command    string
	Args       []string
	Env        []struct{ Name, Value string }
}

// loadKubeconfig reads one context of a kubeconfig.
func loadKubeconfig(path, contextName string) (*credentials, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, wrapError(errorcode.EngineNotFound, err, "cannot read kubeconfig")
	}
	var config kubeconfig
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, wrapError(errorcode.EngineNotFound, err, "cannot read kubeconfig %s", path)
	}
	if contextName == "" {
		contextName = config.CurrentContext
	}
	for _, entry := range config.Contexts {
		if entry.Name == contextName {
			found := &credentials{namespace: entry.Context.Namespace}
			if found.namespace == "" {
				found.namespace = "default"
			}
			return found, config.fill(found, path, entry.Context.Cluster, entry.Context.User)
		}
	}
	return nil, newError(errorcode.EngineNotFound, "kubeconfig %s has no context '%s'", path, contextName)
}

func (k *kubeconfig) fill(found *credentials, path, clusterName, userName string) error {
	for _, entry := range k.Clusters {
		if entry.Name == clusterName {
			found.server, found.insecure = strings.TrimRight(entry.Cluster.Server, "/"), entry.Cluster.Insecure
			ca, err := inlineOrFile(path, entry.Cluster.CAData, entry.Cluster.CAFile)
			if err != nil {
				return wrapError(errorcode.EngineNotFound, err, "kubeconfig %s, cluster '%s'", path, clusterName)
			}
			found.ca = ca
		}
	}
	if found.server == "" {
		return newError(errorcode.EngineNotFound, "kubeconfig %s has no cluster '%s'", path, clusterName)
	}
	for _, entry := range k.Users {
		if entry.Name == userName {
			if err := entry.User.fill(found, path); err != nil {
				return wrapError(errorcode.Unauthenticated, err, "kubeconfig %s, user '%s'", path, userName)
			}
		}
	}
	return nil
}

func (u *kubeconfigUser) fill(found *credentials, path string) error {
	if u.Exec != nil {
		if err := u.Exec.ask(u); err != nil {
			return err
		}
	}
	found.token, found.tokenFile = u.Token, u.TokenFile
	certificate, err := inlineOrFile(path, u.CertificateData, u.CertificateFile)
	if err != nil || certificate == nil {
		return err
	}
	key, err := inlineOrFile(path, u.KeyData, u.KeyFile)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	found.certificate = &pair
	return err
}

func inlineOrFile(kubeconfigPath, inline, file string) ([]byte, error) {
	if inline != "" {
		return base64.StdEncoding.DecodeString(inline)
	}
	if file == "" {
		return nil, nil
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(kubeconfigPath), file)
	}
	return os.ReadFile(file)
}

// ask runs a credential plugin, as client-go does.
func (p *execPlugin) ask(into *kubeconfigUser) error {
	info, err := json.Marshal(map[string]any{"apiVersion": p.APIVersion, "kind": "ExecCredential", "spec": map[string]any{"interactive": false}})
	if err != nil {
		return err
	}
	command := exec.Command(p.Command, p.Args...)
	command.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+string(info))
	for _, entry := range p.Env {
		command.Env = append(command.Env, entry.Name+"="+entry.Value)
	}
	output, err := command.Output()
	if err != nil {
		return err
	}
	var answer struct {
		Status *struct{ Token, ClientCertificateData, ClientKeyData string }
	}
	if err := json.Unmarshal(output, &answer); err != nil {
		return err
	}
	if answer.Status == nil {
		return errors.New("the credential plugin gave no credential")
	}
	into.Token = answer.Status.Token
	if answer.Status.ClientCertificateData != "" {
		into.CertificateData = base64.StdEncoding.EncodeToString([]byte(answer.Status.ClientCertificateData))
		into.KeyData = base64.StdEncoding.EncodeToString([]byte(answer.Status.ClientKeyData))
	}
	return nil
}

const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// inClusterCredentials are those of the Pod this runs in, or nil outside of one.
func inClusterCredentials() *credentials {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	ca, err := os.ReadFile(filepath.Join(serviceAccountDir, "ca.crt"))
	if host == "" || port == "" || err != nil {
		return nil
	}
	namespace, err := os.ReadFile(filepath.Join(serviceAccountDir, "namespace"))
	if err != nil {
		namespace = []byte("default")
	}
	return &credentials{
		server: "https://" + net.JoinHostPort(host, port), namespace: strings.TrimSpace(string(namespace)), ca: ca,
		tokenFile: filepath.Join(serviceAccountDir, "token"),
	}
}
