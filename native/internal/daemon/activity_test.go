package daemon

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestActivityTellsOfTheFirstAnswerOnceAndOfEveryRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rests, answers atomic.Int32
		a := NewActivity(func() { rests.Add(1) }, func() { answers.Add(1) })
		first, second := a.begin(kindProcess), a.begin(kindFile)
		time.Sleep(2 * restAfter)
		if rests.Load() != 0 || answers.Load() != 0 {
			t.Errorf("%d rests and %d answers while both are open", rests.Load(), answers.Load())
		}
		first()
		second()
		a.begin(kindProcess)()
		synctest.Wait()
		if answers.Load() != 1 {
			t.Errorf("%d first answers", answers.Load())
		}
		time.Sleep(2 * restAfter)
		if rests.Load() != 1 {
			t.Errorf("%d rests", rests.Load())
		}
	})
}
