package main

import (
	"io"
	"net"
	"sync"
)

// cuttingProxy is a TCP proxy whose connections can be cut, as a bad network does.
type cuttingProxy struct {
	listener net.Listener
	mutex    sync.Mutex
	open     map[net.Conn]bool
}

func startProxy(target string) (*cuttingProxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &cuttingProxy{listener: listener, open: map[net.Conn]bool{}}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(near, target)
		}
	}()
	return p, nil
}

func (p *cuttingProxy) serve(near net.Conn, target string) {
	far, err := net.Dial("tcp", target)
	if err != nil {
		near.Close()
		return
	}
	p.mutex.Lock()
	p.open[near], p.open[far] = true, true
	p.mutex.Unlock()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			pair[0].Close()
		})
	}
	both.Wait()
	p.mutex.Lock()
	delete(p.open, near)
	delete(p.open, far)
	p.mutex.Unlock()
}

// cut ends every connection at once.
func (p *cuttingProxy) cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for connection := range p.open {
		if tcp, isTCP := connection.(*net.TCPConn); isTCP {
			_ = tcp.SetLinger(0)
		}
		connection.Close()
	}
}

func (p *cuttingProxy) close() {
	p.listener.Close()
	p.cut()
}
