#include "textflag.h"
// The places of fields in the types of vfork.go.
#include "go_asm.h"

#define SYS_rt_sigprocmask 14
#define SYS_exit 60
#define SYS_prlimit64 302
#define SYS_clone3 435
#define SIG_SETMASK 2

#define sigset_size 8

// The greatest result of a system call that is not an error, as an unsigned number.
#define result_max -4096

// func start(a *attempt) int
//
// A system call changes AX, CX and R11 only: R12 to R14 keep what both sides need. Neither side pushes anything.
TEXT ·start(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ	a+0(FP), R12

	MOVQ	$SIG_SETMASK, DI
	LEAQ	attempt_masks(R12), SI
	LEAQ	attempt_masks+8(R12), DX
	MOVQ	$sigset_size, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL

	MOVQ	R12, DI
	MOVQ	$const_requestBytes, SI
	MOVQ	$SYS_clone3, AX
	SYSCALL
	MOVQ	AX, R13

	MOVQ	$SIG_SETMASK, DI
	LEAQ	attempt_masks+8(R12), SI
	MOVQ	$0, DX
	MOVQ	$sigset_size, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL

	TESTQ	R13, R13
	JZ	child
	MOVQ	R13, ret+8(FP)
	RET

child:
	MOVQ	attempt_first(R12), R13
	MOVQ	attempt_last(R12), R14
next:
	MOVQ	Call_Number(R13), AX
	MOVQ	Call_Args(R13), DI
	MOVQ	Call_Args+8(R13), SI
	MOVQ	Call_Args+16(R13), DX
	MOVQ	Call_Args+24(R13), R10
	SYSCALL
	CMPQ	AX, $result_max
	JHI	failed
	CMPQ	R13, R14
	JEQ	done
	ADDQ	$Call__size, R13
	JMP	next

failed:
	NEGQ	AX
	MOVQ	R13, attempt_failed(R12)
	MOVQ	AX, attempt_errno(R12)
done:
	MOVQ	$127, DI
	MOVQ	$SYS_exit, AX
	SYSCALL
	INT	$3

// func readLimit(resource int, limit *Limit) int
TEXT ·readLimit(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ	$0, DI
	MOVQ	resource+0(FP), SI
	MOVQ	$0, DX
	MOVQ	limit+8(FP), R10
	MOVQ	$SYS_prlimit64, AX
	SYSCALL
	MOVQ	AX, ret+16(FP)
	RET
