package main

import (
	"context"
	"os"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	stages := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{
		Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{Rpc: stages}}},
	}, nil
}

// published refuses what is not published to this node.
func (d *driver) published(id string) error {
	if !d.array.isMarked("published", id, d.node) {
		return status.Error(codes.FailedPrecondition, "not published to "+d.node)
	}
	return nil
}

func (d *driver) NodeStageVolume(_ context.Context, asked *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := d.published(asked.VolumeId); err != nil {
		return nil, err
	}
	if err := d.array.mark("staged", asked.VolumeId, d.node); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.done("NodeStageVolume", asked.VolumeId, d.node)
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *driver) NodeUnstageVolume(_ context.Context, asked *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.array.unmark("staged", asked.VolumeId, d.node)
	d.done("NodeUnstageVolume", asked.VolumeId, d.node)
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(_ context.Context, asked *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := d.published(asked.VolumeId); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(asked.TargetPath, 0o755); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	// A kubelet that was started again asks once more.
	if isSame(d.array.volume(asked.VolumeId), asked.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := syscall.Mount(d.array.volume(asked.VolumeId), asked.TargetPath, "", syscall.MS_BIND, ""); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.done("NodePublishVolume", asked.VolumeId, d.node)
	return &csi.NodePublishVolumeResponse{}, nil
}

func isSame(volume, target string) bool {
	one, err := os.Stat(volume)
	if err != nil {
		return false
	}
	other, err := os.Stat(target)
	return err == nil && os.SameFile(one, other)
}

func (d *driver) NodeUnpublishVolume(_ context.Context, asked *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	// Not mounted any more is what is wanted, and was so after a power cut.
	_ = syscall.Unmount(asked.TargetPath, 0)
	if err := os.Remove(asked.TargetPath); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.done("NodeUnpublishVolume", asked.VolumeId, d.node)
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
