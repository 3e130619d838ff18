package ruleset

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// word is everything that a rendered rule may be made of: names of ours, numbers, addresses and nft's own words.
var word = regexp.MustCompile(`^[a-z0-9_./:@{}"*|!=<>,;&()+-]*$`)

// FuzzRender renders any rule set that passes the check: no word of a caller reaches nft, and no statement can be smuggled in.
func FuzzRender(f *testing.F) {
	for _, text := range []string{
		`{"endpoints":[{"slot":1,"address":"10.200.0.2","ingress":[{"ports":[{"protocol":"TCP","port":80,"endPort":90}]}],"egress":[{"blocks":[{"cidr":"0.0.0.0/0","except":["10.0.0.0/8"]}]}]}],"gatewayPorts":[{"protocol":"UDP","port":53}],"sleeping":[{"address":"10.200.0.3","ingress":[{}]}]}`,
		`{"endpoints":[{"slot":2,"address":"10.200.0.4 ; flush ruleset","ingress":[],"egress":[]}]}`,
		`{"endpoints":[{"slot":2,"address":"10.200.0.4","egress":[{"blocks":[{"cidr":"10.0.0.0/8\naccept"}]}]}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r RuleSet
		if json.Unmarshal(body, &r) != nil || r.Check() != nil {
			return
		}
		text := Render(r, scope())
		for _, line := range strings.Split(text, "\n") {
			for _, part := range strings.Fields(line) {
				if !word.MatchString(part) {
					t.Fatalf("%q in %q", part, line)
				}
			}
			if strings.Contains(line, "flush ruleset") || strings.Contains(line, "include") {
				t.Fatalf("a statement of the caller's: %q", line)
			}
		}
		if strings.Count(text, "{") != strings.Count(text, "}") {
			t.Fatalf("braces do not match:\n%s", text)
		}
	})
}
