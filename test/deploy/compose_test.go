package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"invalidator/internal/config"
	"invalidator/sink"
)

// composeService is what of a service others depend on.
type composeService struct {
	Profiles  []string  `yaml:"profiles"`
	Image     string    `yaml:"image"`
	ReadOnly  bool      `yaml:"read_only"`
	Ports     []string  `yaml:"ports"`
	Volumes   []string  `yaml:"volumes"`
	DependsOn yaml.Node `yaml:"depends_on"`
}

func compose(t *testing.T) (services map[string]composeService, volumes map[string]any) {
	t.Helper()
	var file struct {
		Services map[string]composeService `yaml:"services"`
		Volumes  map[string]any            `yaml:"volumes"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	return file.Services, file.Volumes
}

// The file is what the Compose specification takes (testdata/compose-spec.json, as compose-go 2.16.2 has it, Apache 2.0).
func TestComposeFileIsWhatComposeTakes(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("testdata/compose-spec.json")
	if err != nil {
		t.Fatal(err)
	}
	var file any
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(file); err != nil {
		t.Error(err)
	}
}

// Every service that another waits for is there, and so is every file and volume that one mounts.
func TestComposeNamesWhatIsThere(t *testing.T) {
	services, volumes := compose(t)
	for name, s := range services {
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if !strings.HasPrefix(from, "./") {
				if _, ok := volumes[from]; !ok {
					t.Errorf("%s mounts the volume %s, which is none", name, from)
				}
			} else if _, err := os.Stat(filepath.Join(root, from)); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		for _, n := range s.DependsOn.Content {
			if _, ok := services[n.Value]; !ok && n.Kind == yaml.ScalarNode {
				t.Errorf("%s depends on %s, which is no service", name, n.Value)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s to other machines", name, p)
			}
		}
	}
}

// The pipeline of the profile system finds its broker, etcd, databases and nodes by the names and ports of their services, and is
// found itself by Prometheus.
func TestComposeSystem(t *testing.T) {
	services, _ := compose(t)
	c, err := config.Load(filepath.Join(root, "deploy/local/system/invalidator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := sink.ParseRecord("ring.json", []byte(read(t, "deploy/local/system/ring.json")))
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]string{"kafka": "9092", "etcd": "2379", "mysql": "3306", "mariadb": "3306", "postgres": "5432"}
	addresses := append(slices.Clone(c.Kafka.Brokers), c.Cache.Ring.Etcd.Endpoints...)
	for _, s := range c.Sources {
		addresses = append(addresses, s.Hosts...)
	}
	for _, s := range ring.Shards {
		addresses = append(addresses, s.Primary.Addr)
		for _, r := range s.Replicas {
			addresses = append(addresses, r.Addr)
		}
	}
	for _, a := range addresses {
		host, port, _ := strings.Cut(a, ":")
		want, ok := ports[host]
		if !ok && strings.HasPrefix(host, "memcached") {
			want = "11211"
		}
		if _, there := services[host]; !there || port != want {
			t.Errorf("%s is no service's address", a)
		}
	}
	if !strings.Contains(read(t, "docker-compose.yml"), ",CONTAINERS://kafka:9092\n") {
		t.Error("the broker advertises no address that other containers reach")
	}
	ours := 0
	for name, s := range services {
		if s.Image == "invalidator:dev" {
			ours++
			if !s.ReadOnly || !slices.Equal(s.Profiles, []string{"system"}) || !slices.Contains(s.Volumes, "./mappings.d:"+c.Mappings.Dir+":ro") {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
	scraped := regexp.MustCompile(`"((?:worker|feeder)-\d):8480"`).FindAllStringSubmatch(read(t, "deploy/prometheus/prometheus.yml"), -1)
	for _, s := range scraped {
		if services[s[1]].Image != "invalidator:dev" {
			t.Errorf("Prometheus asks %s, which is none of ours", s[1])
		}
	}
	if c.Admin.Listen != "0.0.0.0:8480" || ours != 4 || len(scraped) != ours {
		t.Errorf("admin.listen %s; %d of ours, of which Prometheus asks %d", c.Admin.Listen, ours, len(scraped))
	}
}
