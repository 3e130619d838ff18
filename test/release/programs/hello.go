package main

import (
	"context"
	"fmt"

	sandbox "agent-sandbox.dev/sdk"
)

func main() {
	ctx := context.Background()
	box, err := sandbox.Create(ctx)
	if err != nil {
		panic(err)
	}
	defer box.Delete(ctx)
	out, err := box.Command(ctx, "echo", "hello").Output()
	fmt.Printf("%s%v\n", out, err)
}
