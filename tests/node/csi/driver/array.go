package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// array is the folder in which everything is a file:
//
//	volumes/ID          what is in the volume
//	shared/ID           it may be published to several nodes
//	published/ID/NODE   it is
//	staged/ID/NODE      that node's kubelet uses it
//	faults/CALL         "fail", "hang", or a time to wait for, as 5s
//	trail.jsonl         a line a call that changed something or was refused
type array struct{ root string }

func (a array) prepare() error {
	for _, name := range []string{"volumes", "shared", "published", "staged", "faults"} {
		if err := os.MkdirAll(filepath.Join(a.root, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (a array) volume(id string) string { return filepath.Join(a.root, "volumes", id) }

func (a array) isShared(id string) bool { return exists(filepath.Join(a.root, "shared", id)) }

// marked are the nodes to which a volume is published, or on which it is staged.
func (a array) marked(kind, id string) []string {
	var found []string
	entries, _ := os.ReadDir(filepath.Join(a.root, kind, id))
	for _, each := range entries {
		found = append(found, each.Name())
	}
	return found
}

func (a array) isMarked(kind, id, node string) bool {
	return exists(filepath.Join(a.root, kind, id, node))
}

func (a array) mark(kind, id, node string) error {
	folder := filepath.Join(a.root, kind, id)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, node), nil, 0o644)
}

func (a array) unmark(kind, id, node string) {
	_ = os.Remove(filepath.Join(a.root, kind, id, node))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

type line struct {
	At     string `json:"at"`
	Call   string `json:"call"`
	By     string `json:"by"`
	Volume string `json:"volume"`
	Node   string `json:"node"`
	Result string `json:"result"`
	Why    string `json:"why"`
}

func (a array) note(what line) {
	what.At = time.Now().UTC().Format(time.RFC3339Nano)
	text, _ := json.Marshal(what)
	// Appended in one write, so that lines of several processes do not mix.
	file, err := os.OpenFile(filepath.Join(a.root, "trail.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, _ = file.Write(append(text, '\n'))
		_ = file.Close()
	}
}

// fault is what a test wants that call to meet.
func (a array) fault(ctx context.Context, call string) error {
	text, err := os.ReadFile(filepath.Join(a.root, "faults", call))
	if err != nil {
		return nil
	}
	wanted := strings.TrimSpace(string(text))
	if wanted == "fail" {
		return status.Error(codes.Internal, "the array does not answer")
	}
	var over <-chan time.Time
	if seconds, err := time.ParseDuration(wanted); err == nil {
		over = time.After(seconds)
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
