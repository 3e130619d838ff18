#include "textflag.h"
// The places of fields in the types of vfork.go.
#include "go_asm.h"

#define SYS_exit 93
#define SYS_rt_sigprocmask 135
#define SYS_prlimit64 261
#define SYS_clone3 435
#define SIG_SETMASK 2

#define sigset_size 8

// The greatest result of a system call that is not an error, as an unsigned number.
#define result_max -4096

// func start(a *attempt) int
//
// A system call changes R0 only: R19 to R21 keep what both sides need. Neither side has a frame.
TEXT ·start(SB), NOSPLIT|NOFRAME, $0-16
	MOVD	a+0(FP), R19

	MOVD	$SIG_SETMASK, R0
	ADD	$attempt_masks, R19, R1
	ADD	$(attempt_masks+8), R19, R2
	MOVD	$sigset_size, R3
	MOVD	$SYS_rt_sigprocmask, R8
	SVC

	MOVD	R19, R0
	MOVD	$const_requestBytes, R1
	MOVD	$SYS_clone3, R8
	SVC
	MOVD	R0, R20

	MOVD	$SIG_SETMASK, R0
	ADD	$(attempt_masks+8), R19, R1
	MOVD	$0, R2
	MOVD	$sigset_size, R3
	MOVD	$SYS_rt_sigprocmask, R8
	SVC

	CBZ	R20, child
	MOVD	R20, ret+8(FP)
	RET

child:
	MOVD	attempt_first(R19), R20
	MOVD	attempt_last(R19), R21
next:
	MOVD	Call_Number(R20), R8
	MOVD	Call_Args(R20), R0
	MOVD	Call_Args+8(R20), R1
	MOVD	Call_Args+16(R20), R2
	MOVD	Call_Args+24(R20), R3
	SVC
	MOVD	$result_max, R4
	CMP	R4, R0
	BHI	failed
	CMP	R21, R20
	BEQ	done
	ADD	$Call__size, R20
	B	next

failed:
	NEG	R0, R0
	MOVD	R20, attempt_failed(R19)
	MOVD	R0, attempt_errno(R19)
done:
	MOVD	$127, R0
	MOVD	$SYS_exit, R8
	SVC
	BRK

// func readLimit(resource int, limit *Limit) int
TEXT ·readLimit(SB), NOSPLIT|NOFRAME, $0-24
	MOVD	$0, R0
	MOVD	resource+0(FP), R1
	MOVD	$0, R2
	MOVD	limit+8(FP), R3
	MOVD	$SYS_prlimit64, R8
	SVC
	MOVD	R0, ret+16(FP)
	RET
