// Storage of the bed: volumes are folders of one array, which all nodes share.
//
// One program is the controller (without -node) and, one a node, what serves its kubelet. It is as strict as an
// array with fencing would be: a volume of one writer is published to one node at a time, and staged only where it
// is published. What the specification of CSI forbids and an array cannot refuse is carried out and marked.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const driverName = "bed.csi.ebbtide.test"

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	array array
	// The node that it serves; empty: it is the controller.
	node string
	// One call at a time, but for those that hang.
	turn sync.Mutex
}

func main() {
	socket := flag.String("socket", "", "where CSI is served")
	root := flag.String("array", "", "the folder of the array")
	node := flag.String("node", "", "the node that is served; none: the controller")
	plugins := flag.String("plugins", "", "the kubelet's folder of plugins that want to be known")
	flag.Parse()

	made := &driver{array: array{root: *root}, node: *node}
	if err := made.array.prepare(); err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(made.call))
	csi.RegisterIdentityServer(server, made)
	csi.RegisterControllerServer(server, made)
	if *node != "" {
		csi.RegisterNodeServer(server, made)
		go introduce(filepath.Join(*plugins, driverName+"-reg.sock"), *socket)
	}
	log.Fatal(server.Serve(listen(*socket)))
}

// call has each call meet its fault, wait for its turn, and leave a line where it was refused.
func (d *driver) call(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	name := path.Base(info.FullMethod)
	if err := d.array.fault(ctx, name); err != nil {
		d.array.note(line{Call: name, By: d.node, Volume: volumeOf(request), Node: nodeOf(request), Result: "fault", Why: err.Error()})
		return nil, err
	}
	d.turn.Lock()
	defer d.turn.Unlock()
	answer, err := handle(ctx, request)
	if err != nil && status.Code(err) != codes.Unimplemented {
		d.array.note(line{Call: name, By: d.node, Volume: volumeOf(request), Node: nodeOf(request), Result: "refused", Why: err.Error()})
	}
	return answer, err
}

func volumeOf(request any) string {
	if named, ok := request.(interface{ GetVolumeId() string }); ok {
		return named.GetVolumeId()
	}
	return ""
}

func nodeOf(request any) string {
	if named, ok := request.(interface{ GetNodeId() string }); ok {
		return named.GetNodeId()
	}
	return ""
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	controller := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{
		Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: controller}}},
	}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// plugin is what a kubelet asks of whoever puts a socket into its folder.
type plugin struct {
	registration.UnimplementedRegistrationServer
	socket string
}

func introduce(place, socket string) {
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, plugin{socket: socket})
	log.Fatal(server.Serve(listen(place)))
}

func (p plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: p.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (p plugin) NotifyRegistrationStatus(_ context.Context, said *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("known to the kubelet: %t %s", said.PluginRegistered, said.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func listen(place string) net.Listener {
	// Of one that was killed.
	_ = os.Remove(place)
	listening, err := net.Listen("unix", place)
	if err != nil {
		log.Fatal(err)
	}
	return listening
}
