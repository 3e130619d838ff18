package daemon

import (
	"encoding/json"
	"testing"
)

// R16: every refusal under /v1 has the published shape, and no path is answered with a redirect to another one.
func TestRefusalsHaveOneShapeAndNothingRedirects(t *testing.T) {
	w := newWorld(t)
	for _, ask := range [][2]string{
		{"GET", "/v1/nothing"}, {"GET", "/v1/"}, {"POST", "/v1/health"}, {"PATCH", "/v1/files/x"}, {"GET", "/v1/files/none"},
		{"GET", "/v1//files/x"}, {"GET", "/v1/files/../secret"}, {"GET", "/v1/files/./none"}, {"DELETE", "/v1/files/none"}, {"GET", "/v1/dial/x"},
	} {
		answer := w.request(ask[0], ask[1], "")
		var body errorBody
		err := json.Unmarshal([]byte(answer.body), &body)
		if answer.status < 400 || err != nil || body.Code == "" || body.Message == "" || answer.header.Get("Location") != "" {
			t.Errorf("%v: %d %q %v", ask, answer.status, answer.body, err)
		}
	}
}
