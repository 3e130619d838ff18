package sandbox

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestLinksOfThisMachinesEngineAreCleartext(t *testing.T) {
	for _, test := range []struct {
		router  string
		isLocal bool
		want    string
	}{
		{"https://127.0.0.1:7080", true, "http://127.0.0.1:7080"},
		{"https://localhost:7080", true, "http://localhost:7080"},
		{"https://[::1]:7080", true, "http://[::1]:7080"},
		{"https://router.example", true, "https://router.example"},
		{"https://127.0.0.1:7080", false, "https://127.0.0.1:7080"},
	} {
		if got := (&Engine{routerURL: test.router, isLocal: test.isLocal}).linkBase(); got != test.want {
			t.Errorf("%s: %s", test.router, got)
		}
	}
}

func TestTheImagesOwnProgramWaitsForInput(t *testing.T) {
	for name, test := range map[string]struct {
		given map[string]any
		want  any
	}{
		"nothing":   {map[string]any{}, true},
		"arguments": {map[string]any{"args": []any{"-v"}}, nil},
		"command":   {map[string]any{"command": []any{"sh"}}, nil},
		"stdin":     {map[string]any{"stdin": false}, false},
	} {
		template := map[string]any{"spec": map[string]any{"containers": []any{test.given}}}
		made, err := sandboxObject(&settings{image: "i", usesImageCommand: true, podTemplate: template}, time.Now(), true)
		if err != nil {
			t.Fatal(err)
		}
		pod := made["spec"].(map[string]any)["podTemplate"].(map[string]any)["spec"].(map[string]any)
		if got := pod["containers"].([]any)[0].(map[string]any)["stdin"]; got != test.want {
			t.Errorf("%s: stdin is %v", name, got)
		}
	}
}

func TestServiceNames(t *testing.T) {
	for _, name := range []string{"", "Web", "-a", "a-", "a_b"} {
		if err := (&Sandbox{}).StartService(t.Context(), name, []string{"true"}, ServiceOptions{}); CodeOf(err) != "invalid-argument" {
			t.Errorf("%q: %v", name, err)
		}
	}
	kept := withoutService([]declaredService{{Name: "web"}, {Name: "other"}}, "web")
	if len(kept) != 1 || kept[0].Name != "other" {
		t.Errorf("%+v", kept)
	}
}

func TestTheBoundOfServicesIs8192BytesOfUTF8(t *testing.T) {
	for name, longest := range map[string]string{
		"ASCII":           strings.Repeat("x", 8161),
		"two bytes each":  strings.Repeat("é", 4080) + "x",
		"signs of HTML":   strings.Repeat("<", 8161),
		"line separators": strings.Repeat("\u2028", 2720) + "x",
		"an escape":       strings.Repeat("x", 8154) + `\u2028`,
	} {
		text, isWithinBounds, err := formatServices([]declaredService{{Name: "web", Command: []string{longest}}})
		if err != nil || !isWithinBounds || len(text) != 8192 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
		var read []declaredService
		if err := json.Unmarshal([]byte(text), &read); err != nil || read[0].Command[0] != longest {
			t.Errorf("%s: not read back: %v", name, err)
		}
		if _, isWithinBounds, _ := formatServices([]declaredService{{Name: "web", Command: []string{longest + "x"}}}); isWithinBounds {
			t.Errorf("%s: one byte more is accepted", name)
		}
	}
}
