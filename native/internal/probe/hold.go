package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Marks are what Hold leaves for others to find, or not.
type Marks struct {
	// Name is the name of an abstract socket.
	Name string `json:"-"`
	// Key is that of a segment of System V memory; 0: none.
	Key int `json:"key"`
	// Files are made with Name as content.
	Files []string `json:"files"`
	// Listen are addresses where TCP connections and datagrams are answered.
	Listen []string `json:"listen"`
}

// Noted is a datagram that came: one JSON line each.
type Noted struct {
	From string `json:"from"`
	Text string `json:"text"`
}

// notedMax bounds what is written down; who sends more has been seen by then.
const notedMax = 10_000

// Hold makes the marks, says so with an empty line, and stays until it gets a signal to end.
func Hold(m Marks, out io.Writer) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if m.Key != 0 {
		id, err := makeSegment(m.Key)
		if err != nil {
			return fmt.Errorf("segment: %w", err)
		}
		defer removeSegment(id)
	}
	for _, file := range m.Files {
		if err := os.WriteFile(file, []byte(m.Name), 0o644); err != nil {
			return err
		}
		defer os.Remove(file)
	}
	listener, err := net.Listen("unix", "@"+m.Name)
	if err != nil {
		return err
	}
	defer listener.Close()
	book := &notebook{out: json.NewEncoder(out)}
	for _, address := range m.Listen {
		if err := answerAt(address, book); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	<-end
	return nil
}

type notebook struct {
	mu    sync.Mutex
	count int
	out   *json.Encoder
}

func (b *notebook) note(from net.Addr, text []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count++; b.count <= notedMax {
		b.out.Encode(Noted{From: from.String(), Text: string(text)})
	}
}

func answerAt(address string, book *notebook) error {
	stream, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := stream.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	datagrams, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := datagrams.ReadFrom(buffer)
			if err != nil {
				return
			}
			book.note(from, buffer[:n])
			datagrams.WriteTo([]byte(answer), from)
		}
	}()
	return nil
}
