package sandbox

import (
	"encoding/json"
	"os"
	"testing"
)

func TestPhasesAreThoseOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../spec/sandbox-phase.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Name    string
			Sandbox object
			Expect  phase
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) == 0 {
		t.Fatal("the table is empty")
	}
	for _, row := range golden.Cases {
		t.Run(row.Name, func(t *testing.T) {
			if found := phaseOf(&row.Sandbox); found != row.Expect {
				t.Errorf("found %+v, want %+v", found, row.Expect)
			}
			if hasFailed := judgeSandbox(&row.Sandbox).err != nil; hasFailed != row.Expect.IsTerminal {
				t.Errorf("raised at once: %v, want %v", hasFailed, row.Expect.IsTerminal)
			}
		})
	}
}
