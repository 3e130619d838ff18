// Claims many sandboxes from a warm pool at once and prints how long each one took to be usable.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	sandbox "agent-sandbox.dev/sdk"
)

// Longer than a cold start takes on a busy machine.
const claimLimit = 2 * time.Minute

// claim is what one user saw.
type claim struct {
	user  int
	name  string
	took  time.Duration
	warm  bool
	err   error
	hello string
}

func main() {
	pool := flag.String("pool", "example-pool", "the pool to claim from")
	users := flag.Int("claims", 10, "how many claim at once")
	flag.Parse()

	ctx, cancel := context.WithTimeout(context.Background(), claimLimit)
	defer cancel()
	started := time.Now()
	claims := claimAll(ctx, *pool, *users)
	report(claims, time.Since(started))
	for _, c := range claims {
		if c.err != nil {
			log.Fatalf("user %d: %v", c.user, c.err)
		}
	}
}

// claimAll lets every user claim at the same moment and returns what they saw, fastest first.
func claimAll(ctx context.Context, pool string, users int) []claim {
	seen := make([]claim, users)
	var everybody sync.WaitGroup
	for user := range users {
		everybody.Go(func() { seen[user] = claimOne(ctx, pool, user) })
	}
	everybody.Wait()
	slices.SortFunc(seen, func(a, b claim) int { return int(a.took - b.took) })
	return seen
}

// claimOne measures from the call until a command has run, and gives the sandbox back.
func claimOne(ctx context.Context, pool string, user int) claim {
	called := time.Now()
	box, err := sandbox.Claim(ctx, pool)
	if err != nil {
		return claim{user: user, took: time.Since(called), err: err}
	}
	defer func() { _ = box.Delete(context.WithoutCancel(ctx)) }()
	result, err := box.Run(ctx, fmt.Sprintf("echo hello user %d", user))
	took := time.Since(called)
	if err != nil {
		return claim{user: user, name: box.Name, took: took, err: err}
	}
	info, err := box.Info(ctx)
	if err != nil {
		return claim{user: user, name: box.Name, took: took, err: err}
	}
	// One that is older than the call was waiting for it; the API's times are whole seconds.
	warm := info.CreatedAt.Before(called.Truncate(time.Second))
	return claim{user: user, name: box.Name, took: took, warm: warm, hello: string(result.Stdout)}
}

func report(claims []claim, total time.Duration) {
	warm := 0
	for _, c := range claims {
		how := "cold"
		if c.warm {
			how, warm = "warm", warm+1
		}
		fmt.Printf("user %2d  %-4s  %7s  %s\n", c.user, how, c.took.Round(time.Millisecond), c.name)
	}
	median := claims[len(claims)/2].took.Round(time.Millisecond)
	fmt.Printf("%d claims in %s, %d warm; fastest %s, median %s, slowest %s\n", len(claims), total.Round(time.Millisecond), warm,
		claims[0].took.Round(time.Millisecond), median, claims[len(claims)-1].took.Round(time.Millisecond))
}
