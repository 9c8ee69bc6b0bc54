package deploy

import (
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests are what kustomize makes of a folder, by kind and name.
type manifests map[string]any

// build runs kustomize as `kubectl apply -k` does, and reads each object strictly: no field that Kubernetes does not know.
func build(t *testing.T, dir string) manifests {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "deploy/kubernetes", dir))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]func() any{
		"Deployment":              func() any { return &appsv1.Deployment{} },
		"HorizontalPodAutoscaler": func() any { return &autoscalingv2.HorizontalPodAutoscaler{} },
		"PodDisruptionBudget":     func() any { return &policyv1.PodDisruptionBudget{} },
		"NetworkPolicy":           func() any { return &networkingv1.NetworkPolicy{} },
		"ServiceAccount":          func() any { return &corev1.ServiceAccount{} },
		"ConfigMap":               func() any { return &corev1.ConfigMap{} },
		"Namespace":               func() any { return &corev1.Namespace{} },
	}
	all := manifests{}
	for _, r := range made.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		id := r.GetKind() + " " + r.GetName()
		kind, ok := kinds[r.GetKind()]
		if !ok {
			t.Fatalf("%s is of a kind that no test knows", id)
		}
		object := kind()
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		all[id] = object
	}
	return all
}

func get[T any](t *testing.T, of manifests, id string) T {
	t.Helper()
	object, ok := of[id].(T)
	if !ok {
		t.Fatalf("there is no %s among %q", id, slices.Sorted(maps.Keys(of)))
	}
	return object
}

var roles = []string{"feeder", "worker"}

// Base and example are read strictly, and what selects pods selects those of its role.
func TestManifests(t *testing.T) {
	for _, dir := range []string{"base", "overlays/example"} {
		of := build(t, dir)
		hpa := get[*autoscalingv2.HorizontalPodAutoscaler](t, of, "HorizontalPodAutoscaler invalidator-worker")
		get[*appsv1.Deployment](t, of, hpa.Spec.ScaleTargetRef.Kind+" "+hpa.Spec.ScaleTargetRef.Name)
		for _, role := range roles {
			d := get[*appsv1.Deployment](t, of, "Deployment invalidator-"+role)
			pod := d.Spec.Template.Labels
			selectors := map[string]map[string]string{
				"Deployment":          d.Spec.Selector.MatchLabels,
				"PodDisruptionBudget": get[*policyv1.PodDisruptionBudget](t, of, "PodDisruptionBudget invalidator-"+role).Spec.Selector.MatchLabels,
				"NetworkPolicy":       get[*networkingv1.NetworkPolicy](t, of, "NetworkPolicy invalidator-"+role).Spec.PodSelector.MatchLabels,
			}
			for _, s := range d.Spec.Template.Spec.TopologySpreadConstraints {
				selectors["spread by "+s.TopologyKey] = s.LabelSelector.MatchLabels
			}
			for what, labels := range selectors {
				if labels["app.kubernetes.io/component"] != role || !contains(pod, labels) {
					t.Errorf("%s: %s of %s selects %v, pods have %v", dir, what, role, labels, pod)
				}
			}
			all := get[*networkingv1.NetworkPolicy](t, of, "NetworkPolicy invalidator").Spec.PodSelector.MatchLabels
			if !contains(pod, all) {
				t.Errorf("%s: the network policy of all selects %v, the %s has %v", dir, all, role, pod)
			}
		}
	}
}

func contains(labels, part map[string]string) bool {
	for k, v := range part {
		if labels[k] != v {
			return false
		}
	}
	return len(part) > 0
}

// Each pod is what the Pod Security Standard "restricted" admits, which the example's namespace enforces, writes nowhere, and has
// less memory for Go's heap than it may use.
func TestPodsAreRestricted(t *testing.T) {
	of := build(t, "overlays/example")
	if ns := get[*corev1.Namespace](t, of, "Namespace invalidator"); ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("namespace: %v", ns.Labels)
	}
	for _, role := range roles {
		pod := get[*appsv1.Deployment](t, of, "Deployment invalidator-"+role).Spec.Template.Spec
		if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser != 65532 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: %+v", role, s)
		}
		if *pod.AutomountServiceAccountToken || len(pod.Containers) != 1 {
			t.Errorf("%s: %+v", role, pod)
		}
		c := pod.Containers[0]
		if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
			t.Errorf("%s: %+v", role, s)
		}
		heap, err := strconv.ParseInt(strings.TrimSuffix(env(c, "GOMEMLIMIT"), "MiB"), 10, 64)
		if limit := c.Resources.Limits.Memory().Value(); err != nil || heap<<20 > limit*2/3 {
			t.Errorf("%s: GOMEMLIMIT %s, memory %d (%v)", role, env(c, "GOMEMLIMIT"), limit, err)
		}
	}
}

func env(c corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// The example's configuration loads from what its pods mount, listens where probes, Prometheus and policies look for it, and
// speaks to no port that the policy of its role leaves out.
func TestExampleFitsItsPods(t *testing.T) {
	of := build(t, "overlays/example")
	for _, role := range roles {
		pod := get[*appsv1.Deployment](t, of, "Deployment invalidator-"+role).Spec.Template
		c := pod.Spec.Containers[0]
		mounts := map[string]string{}
		for _, m := range c.VolumeMounts {
			if !m.ReadOnly || m.SubPath != "" {
				t.Errorf("%s: mount %+v", role, m)
			}
			mounts[m.Name] = m.MountPath
		}
		var text string
		for _, v := range pod.Spec.Volumes {
			if v.Name == "config" {
				text = get[*corev1.ConfigMap](t, of, "ConfigMap "+v.ConfigMap.Name).Data["invalidator.yaml"]
			}
		}
		if want := "--config=" + mounts["config"] + "/invalidator.yaml"; !slices.Contains(c.Args, want) {
			t.Errorf("%s: %q has no %s", role, c.Args, want)
		}
		cfg := loadConfig(t, text, slices.Collect(maps.Values(mounts))...)
		if cfg.Mappings.Dir != mounts["mappings"] {
			t.Errorf("%s: mappings.dir %s, mounted at %s", role, cfg.Mappings.Dir, mounts["mappings"])
		}

		_, port, err := net.SplitHostPort(cfg.Admin.Listen)
		if err != nil || len(c.Ports) != 1 || strconv.Itoa(int(c.Ports[0].ContainerPort)) != port || pod.Annotations["prometheus.io/port"] != port {
			t.Errorf("%s: admin.listen %s, ports %v, annotations %v", role, cfg.Admin.Listen, c.Ports, pod.Annotations)
		}
		for path, probe := range map[string]*corev1.Probe{"/-/healthy": c.LivenessProbe, "/-/ready": c.ReadinessProbe} {
			if probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != c.Ports[0].Name {
				t.Errorf("%s: probe %+v, want %s", role, probe.HTTPGet, path)
			}
		}

		common := get[*networkingv1.NetworkPolicy](t, of, "NetworkPolicy invalidator").Spec
		if in := common.Ingress; len(in) != 1 || len(in[0].Ports) != 1 || in[0].Ports[0].Port.String() != port || len(in[0].From) == 0 {
			t.Errorf("ingress %+v", in)
		}
		allowed := map[string]bool{}
		for _, rule := range append(common.Egress, get[*networkingv1.NetworkPolicy](t, of, "NetworkPolicy invalidator-"+role).Spec.Egress...) {
			for _, p := range rule.Ports {
				allowed[p.Port.String()] = true
			}
		}
		speaks := slices.Clone(cfg.Kafka.Brokers)
		if role == "worker" {
			speaks = append(speaks, cfg.Cache.Ring.Etcd.Endpoints...)
			speaks = append(speaks, "a-node:11211")
		} else {
			for _, s := range cfg.Sources {
				speaks = append(speaks, s.Hosts...)
			}
		}
		for _, address := range speaks {
			if _, port, _ := net.SplitHostPort(address); !allowed[port] {
				t.Errorf("the %s may not speak to %s: its policies allow %v", role, address, slices.Sorted(maps.Keys(allowed)))
			}
		}
		if role == "worker" {
			hpa := get[*autoscalingv2.HorizontalPodAutoscaler](t, of, "HorizontalPodAutoscaler invalidator-worker").Spec
			if int(hpa.MaxReplicas) > cfg.Kafka.Partitions {
				t.Errorf("%d workers for %d partitions: the rest has nothing to do", hpa.MaxReplicas, cfg.Kafka.Partitions)
			}
		}
	}
}

// The figure that the autoscaler asks for is the one that the adapter's rule makes.
func TestAutoscalerAsksForWhatTheAdapterHas(t *testing.T) {
	hpa := get[*autoscalingv2.HorizontalPodAutoscaler](t, build(t, "base"), "HorizontalPodAutoscaler invalidator-worker").Spec
	var adapter struct {
		Rules struct {
			External []struct {
				SeriesQuery, MetricsQuery string
				Name                      struct{ As string }
				Resources                 any
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "deploy/kubernetes/prometheus-adapter.yaml")), &adapter); err != nil {
		t.Fatal(err)
	}
	rule := adapter.Rules.External[0]
	if asked := hpa.Metrics[0].External.Metric.Name; asked != rule.Name.As {
		t.Errorf("asked for %s, made is %s", asked, rule.Name.As)
	}
}
