package changelog

import (
	"regexp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// Metrics are what the client library tells of a process's Kafka clients, all of them together: connections, bytes, errors, how long
// requests take and are held up, records and batches. Their label is the broker's id. It is a hook of each client (Options.Metrics).
type Metrics struct {
	*kprom.Metrics
	once sync.Once
}

// requestBuckets are of the histograms, in seconds: a fetch waits for records, for up to a second.
var requestBuckets = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 10}

// NewMetrics makes metrics that stand in a registry once the process has its first client. They are called invalidator_kafka_….
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{Metrics: kprom.NewMetrics("invalidator",
		kprom.Subsystem("kafka"),
		kprom.Registerer(someOf{r}),
		kprom.FetchAndProduceDetail(kprom.ByNode, kprom.UncompressedBytes, kprom.CompressedBytes, kprom.Records, kprom.Batches, kprom.ConsistentNaming),
		kprom.HistogramsFromOpts(
			kprom.HistogramOpts{Enable: kprom.RequestDurationE2E, Buckets: requestBuckets},
			kprom.HistogramOpts{Enable: kprom.RequestThrottled, Buckets: requestBuckets},
		),
		kprom.NativeBucketFactor(1), // classic ones
	)}
}

// OnNewClient implements kgo.HookNewClient: the first client registers the metrics, and the others share them.
func (m *Metrics) OnNewClient(cl *kgo.Client) { m.once.Do(func() { m.Metrics.OnNewClient(cl) }) }

// OnClientClosed implements kgo.HookClientClosed: the metrics outlive a client.
func (m *Metrics) OnClientClosed(*kgo.Client) {}

// someOf leaves out what kprom registers beside: what is buffered, which is of the first client alone and misnamed, and histograms
// that nobody fills.
type someOf struct{ prometheus.Registerer }

var leftOut = regexp.MustCompile(`"invalidator_kafka_(buffered_.*|(read|write)_(wait|time)_seconds)"`)

// Register implements prometheus.Registerer.
func (r someOf) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc, 1) // each has one
	c.Describe(ch)
	if leftOut.MatchString((<-ch).String()) {
		return nil
	}
	return r.Registerer.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r someOf) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}
