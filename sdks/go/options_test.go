package sandbox

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

// What the compiler accepts: an option is passed to a call where its type has the method of that call's option type.
func TestEveryOptionIsTakenByItsCallsAlone(t *testing.T) {
	calls := map[string]reflect.Type{
		"Create": reflect.TypeFor[CreateOption](), "Open": reflect.TypeFor[OpenOption](), "Claim": reflect.TypeFor[ClaimOption](),
		"Get": reflect.TypeFor[GetOption](), "List": reflect.TypeFor[ListOption](), "From": reflect.TypeFor[FromOption](),
	}
	for _, one := range []struct {
		name   string
		option any
		taken  []string
	}{
		{"WithEngine", WithEngine(nil), []string{"Claim", "Create", "From", "Get", "List", "Open"}},
		{"WithNamespace", WithNamespace(""), []string{"Claim", "Create", "Get", "List", "Open"}},
		{"WithName", WithName(""), []string{"Claim", "Create"}},
		{"WithEnv", WithEnv(nil), []string{"Claim", "Create", "Open"}},
		{"WithReadyTimeout", WithReadyTimeout(0), []string{"Claim", "Create", "Open"}},
		{"WithImage", WithImage(""), []string{"Create", "Open"}},
		{"WithStartPolicy", WithStartPolicy(""), []string{"Claim"}},
		{"WithLabelSelector", WithLabelSelector(""), []string{"List"}},
	} {
		var taken []string
		for _, call := range slices.Sorted(maps.Keys(calls)) {
			if reflect.TypeOf(one.option).Implements(calls[call]) {
				taken = append(taken, call)
			}
		}
		if !slices.Equal(taken, one.taken) {
			t.Errorf("%s is taken by %v, not %v", one.name, taken, one.taken)
		}
	}
}
