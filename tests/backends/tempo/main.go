// Tempo as one process, from its own parts, for tests.
//
// Its own main package relies on the order in which packages were initialised before Go 1.21: its codec for
// gRPC has to be registered after the library's. Here that is done once all packages are.
package main

import (
	"flag"
	"os"

	"github.com/go-kit/log/level"
	"github.com/grafana/tempo/cmd/tempo/app"
	"github.com/grafana/tempo/pkg/util/log"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/runtime/protoiface"
	"google.golang.org/protobuf/runtime/protoimpl"
	"gopkg.in/yaml.v2"
)

// Messages that bring their own encoding use it.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(message any) ([]byte, error) {
	if own, ok := message.(interface{ Marshal() ([]byte, error) }); ok {
		return own.Marshal()
	}
	return proto.Marshal(known(message))
}

func (codec) Unmarshal(data []byte, message any) error {
	if own, ok := message.(interface{ Unmarshal([]byte) error }); ok {
		return own.Unmarshal(data)
	}
	return proto.Unmarshal(data, known(message))
}

func known(message any) proto.Message {
	if of, ok := message.(proto.Message); ok {
		return of
	}
	return protoimpl.X.ProtoMessageV2Of(message.(protoiface.MessageV1))
}

func configured(path string) (*app.Config, error) {
	config := &app.Config{}
	config.RegisterFlagsAndApplyDefaults("", flag.NewFlagSet("", flag.ContinueOnError))
	data, err := os.ReadFile(path)
	if err == nil {
		err = yaml.UnmarshalStrict(data, config)
	}
	config.Ingester.LifecyclerConfig.RingConfig.KVStore.Store = "inmemory"
	config.Ingester.LifecyclerConfig.RingConfig.ReplicationFactor = 1
	config.Ingester.LifecyclerConfig.Addr = "127.0.0.1"
	config.Generator.Ring.KVStore.Store = "inmemory"
	config.Generator.Ring.InstanceAddr = "127.0.0.1"
	return config, err
}

func run() error {
	config, err := configured(os.Args[1])
	if err != nil {
		return err
	}
	log.InitLogger(&config.Server)
	encoding.RegisterCodec(codec{})
	tempo, err := app.New(*config)
	if err != nil {
		return err
	}
	return tempo.Run()
}

func main() {
	if err := run(); err != nil {
		level.Error(log.Logger).Log("err", err)
		os.Exit(1)
	}
}
