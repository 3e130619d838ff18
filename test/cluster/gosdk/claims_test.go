package gosdk

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// A claim with a generated name is bound, its Sandbox becomes Ready, both are found again, and both go with the claim.
func TestClaimLifecycle(t *testing.T) {
	c := connect(t)
	b := c.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	// Reconnect: the claim, then the Sandbox.
	claim, err := c.dynamic.Resource(claims).Namespace(namespace).Get(ctx, b.claim, metav1.GetOptions{})
	must(t, err)
	if boundTo(claim) != b.sandbox || claim.GetUID() == "" {
		t.Errorf("claim %s is bound to %q", b.claim, boundTo(claim))
	}
	sandbox, err := c.dynamic.Resource(sandboxes).Namespace(namespace).Get(ctx, b.sandbox, metav1.GetOptions{})
	must(t, err)
	if !isReady(sandbox) || b.ip == "" {
		t.Errorf("sandbox %s: ready %v, address %q", b.sandbox, isReady(sandbox), b.ip)
	}
	list, err := c.dynamic.Resource(claims).Namespace(namespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	named := func(item unstructured.Unstructured) bool { return item.GetName() == b.claim }
	if !slices.ContainsFunc(list.Items, named) {
		t.Errorf("the list of claims lacks %s", b.claim)
	}
	events, err := c.dynamic.Resource(sandboxes).Namespace(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + b.sandbox, ResourceVersion: sandbox.GetResourceVersion(),
	})
	must(t, err)
	defer events.Stop()
	must(t, c.delete(ctx, b.claim))
	for event := range events.ResultChan() {
		if event.Type == watch.Deleted {
			break
		}
	}
	if ctx.Err() != nil {
		t.Error("the Sandbox outlived its claim")
	}
	if err := c.delete(ctx, b.claim); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("second delete: %v", err)
	}
}

// A wait for a claim ends with an error when the claim is deleted, which the watch reports.
func TestClaimDeletedWhileWaiting(t *testing.T) {
	c := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	claim := c.create(ctx, t, "no-such-pool")
	events, err := c.dynamic.Resource(claims).Namespace(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + claim})
	must(t, err)
	defer events.Stop()
	if first := <-events.ResultChan(); first.Type != watch.Added {
		t.Errorf("a watch without a version begins with %s", first.Type)
	}
	must(t, c.delete(ctx, claim))
	for event := range events.ResultChan() {
		if event.Type == watch.Deleted {
			return
		}
	}
	t.Errorf("no DELETED: %v", ctx.Err())
}

// Gateways are listed and watched by the dynamic client; the first address counts.
func TestGatewayAddress(t *testing.T) {
	c := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	name := setting(t, "GATEWAY")
	selector := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	list, err := c.dynamic.Resource(gateways).Namespace(namespace).List(ctx, selector)
	must(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("%d gateways", len(list.Items))
	}
	events, err := c.dynamic.Resource(gateways).Namespace(namespace).Watch(ctx, selector)
	must(t, err)
	defer events.Stop()
	addresses, _, _ := unstructured.NestedSlice(object(t, <-events.ResultChan()).Object, "status", "addresses")
	address, _ := addresses[0].(map[string]any)
	caller := &runtimeCaller{box: c.open(t), base: "http://" + address["value"].(string)}
	caller.everything(t)
}
