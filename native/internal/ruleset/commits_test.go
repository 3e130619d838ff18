package ruleset

import (
	"encoding/binary"
	"slices"
	"testing"
)

// message is one of nfnetlink, padded as the kernel does.
func message(kind uint16, attributes []byte) []byte {
	head := make([]byte, 20)
	binary.NativeEndian.PutUint32(head, uint32(len(head)+len(attributes)))
	binary.NativeEndian.PutUint16(head[4:], kind)
	return append(head, attributes...)
}

func attribute(kind uint16, value []byte) []byte {
	head := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	head = append(binary.NativeEndian.AppendUint16(head, kind), value...)
	return append(head, make([]byte, aligned(len(head))-len(head))...)
}

func generation(pid uint32) []byte {
	// Its number, its author's number and its author's name.
	return slices.Concat(attribute(1, []byte{0, 0, 0, 7}), attribute(2, binary.BigEndian.AppendUint32(nil, pid)), attribute(3, []byte("nft\x00")))
}

func TestAuthorsOfGenerations(t *testing.T) {
	const newTable = 10 << 8
	whole := slices.Concat(message(newTable, attribute(2, []byte{0, 0, 0, 9})), message(newGeneration, generation(4242)), message(newGeneration, generation(7)))
	for name, test := range map[string]struct {
		datagram []byte
		want     []int
	}{
		"generations alone count":     {whole, []int{4242, 7}},
		"nothing":                     {nil, nil},
		"cut off in a message":        {whole[:len(whole)-1], []int{4242}},
		"cut off in a header":         {whole[:10], nil},
		"a message without an author": {message(newGeneration, attribute(1, []byte{0, 0, 0, 7})), nil},
		"an attribute that is longer": {message(newGeneration, []byte{255, 0, 2, 0, 0, 0, 0, 1}), nil},
		"an attribute without length": {message(newGeneration, []byte{0, 0, 2, 0, 0, 0, 0, 1}), nil},
		"a message without length":    {make([]byte, 64), nil},
	} {
		if got := processesIn(test.datagram); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, not %v", name, got, test.want)
		}
	}
}
