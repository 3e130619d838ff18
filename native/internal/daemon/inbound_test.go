package daemon

import (
	"encoding/json"
	"testing"
)

const recordedTcp = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 00000000:C2EC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0500C80A:1F90 0700C80A:D431 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
   3: 0500C80A:1F90 0100C80A:D432 01 00000000:00000000 00:00000000 00000000     0        0 4 1 0 20 4 30 10 -1
   4: 0100007F:1F90 0100007F:D433 01 00000000:00000000 00:00000000 00000000     0        0 5 1 0 20 4 30 10 -1
   5: 0500C80A:C2EC 0700C80A:D434 01 00000000:00000000 00:00000000 00000000     0        0 6 1 0 20 4 30 10 -1
   6: 0500C80A:D435 0700C80A:1F90 01 00000000:00000000 00:00000000 00000000     0        0 7 1 0 20 4 30 10 -1
   7: 0500C80A:1F90 0700C80A:D436 06 00000000:00000000 00:00000000 00000000     0        0 8 1 0 20 4 30 10 -1
`

const recordedTcp6 = `  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 0
   1: 0000000000000000FFFF00000500C80A:0BB8 0000000000000000FFFF00000800C80A:D431 01 0
   2: 0000000000000000FFFF00000500C80A:0BB8 0000000000000000FFFF00000100C80A:D432 01 0
   3: 00000000000000000000000001000000:0BB8 00000000000000000000000001000000:D433 01 0
   4: 0000000000000000FFFF00000100007F:0BB8 0000000000000000FFFF00000100007F:D434 01 0
`

const recordedRoute = `Iface	Destination	Gateway	Flags	RefCnt	Use	Metric	Mask	MTU	Window	IRTT
eth0	0000C80A	00000000	0001	0	0	0	0000FFFF	0	0	0
eth0	00000000	0100C80A	0003	0	0	0	00000000	0	0	0
`

func TestInboundConnectionsOfOthersAreCounted(t *testing.T) {
	if got := countInbound(recordedTcp+recordedTcp6, gatewayOf(recordedRoute), []string{"C2EC"}); got != 2 {
		t.Errorf("%d, want those of 10.200.0.7 and 10.200.0.8", got)
	}
	if got := countInbound(recordedTcp, "", []string{"C2EC"}); got != 2 {
		t.Errorf("%d, want that of the gateway too where none is known", got)
	}
	if got := countInbound("nonsense\n1: 2 3\n", "", nil); got != 0 {
		t.Errorf("%d", got)
	}
}

func TestActivityTellsInboundConnections(t *testing.T) {
	w := newWorld(t)
	var shown map[string]any
	if err := json.Unmarshal([]byte(w.request("GET", "/v1/activity", "").body), &shown); err != nil || shown["inboundConnections"] == nil {
		t.Fatalf("%v %v", shown, err)
	}
	for port, want := range map[int]string{49900: "C2EC", 80: "0050", 65535: "FFFF"} {
		if got := hexPort(port); got != want {
			t.Errorf("%d is %s, want %s", port, got, want)
		}
	}
}
