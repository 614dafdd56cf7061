package main

import (
	"context"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	} {
		rpc := &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}}
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{Type: rpc})
	}
	return answer, nil
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, asked *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: asked.VolumeCapabilities},
	}, nil
}

func (d *driver) CreateVolume(_ context.Context, asked *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	id := asked.Name
	if err := os.MkdirAll(d.array.volume(id), 0o755); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	for _, each := range asked.VolumeCapabilities {
		if each.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER {
			if err := os.WriteFile(d.array.root+"/shared/"+id, nil, 0o644); err != nil {
				return nil, status.Error(codes.Internal, err.Error())
			}
		}
	}
	d.done("CreateVolume", id, "")
	return &csi.CreateVolumeResponse{
		Volume: &csi.Volume{VolumeId: id, CapacityBytes: asked.GetCapacityRange().GetRequiredBytes()},
	}, nil
}

func (d *driver) DeleteVolume(_ context.Context, asked *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if on := d.array.marked("published", asked.VolumeId); len(on) > 0 {
		return nil, status.Error(codes.FailedPrecondition, "published to "+strings.Join(on, ", "))
	}
	if err := os.RemoveAll(d.array.volume(asked.VolumeId)); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.done("DeleteVolume", asked.VolumeId, "")
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *driver) ControllerPublishVolume(_ context.Context, asked *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := asked.VolumeId, asked.NodeId
	if !exists(d.array.volume(id)) {
		return nil, status.Error(codes.NotFound, "no volume "+id)
	}
	for _, on := range d.array.marked("published", id) {
		if on != node && !d.array.isShared(id) {
			return nil, status.Error(codes.FailedPrecondition, "published to "+on)
		}
	}
	if err := d.array.mark("published", id, node); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.done("ControllerPublishVolume", id, node)
	return &csi.ControllerPublishVolumeResponse{}, nil
}

// ControllerUnpublishVolume does as it is told. An array cannot see that the node still uses the volume; here it
// is seen, and marked.
func (d *driver) ControllerUnpublishVolume(_ context.Context, asked *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	id, node := asked.VolumeId, asked.NodeId
	if d.array.isMarked("staged", id, node) {
		d.array.note(line{Call: "ControllerUnpublishVolume", By: d.node, Volume: id, Node: node, Result: "violation", Why: "still staged there"})
	} else {
		d.done("ControllerUnpublishVolume", id, node)
	}
	d.array.unmark("published", id, node)
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (d *driver) done(call, volume, node string) {
	d.array.note(line{Call: call, By: d.node, Volume: volume, Node: node, Result: "done"})
}
