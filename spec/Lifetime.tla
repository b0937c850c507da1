------------------------------ MODULE Lifetime ------------------------------
(*
How long the operands of an op live that runs later.

The caller's frame holds a handle of each operand. An op is submitted with some of them, runs later, and is over. Meanwhile the
frame may drop its handles. An op that owns an operand holds a handle of it until it is over; one that borrows an operand
doesn't. When its last handle is gone the memory of an operand goes back.

In the runtime no op borrows: `submit` stamps the marks of all operands before it returns, and memory is given back behind its
marks only (`Ticks.tla`, `OperandsLive`). The planted fault `borrowed_operand` makes the borrowing variant of the shipped code.

`conformance/src/lifetime.rs` explores the same model without TLC.
*)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Operands,
    Borrowed, \* Those that the op takes no handle of.
    Threads   \* Each runs the op once, on the same operands.

VARIABLES
    handles,  \* Of each operand: how many there are.
    frame,    \* The operands whose handles the frame still has.
    stage,    \* Of each thread: "called", "submitted", "locked", "encoded", "over".
    readDead  \* Operands that an op has read when no handle was left.

vars == <<handles, frame, stage, readDead>>

Owned == Operands \ Borrowed

Init ==
    /\ handles = [x \in Operands |-> 1]
    /\ frame = Operands
    /\ stage = [t \in Threads |-> "called"]
    /\ readDead = {}

\* = raddle_runtime::submit::Stream::submit
submit(t) ==
    /\ stage[t] = "called"
    /\ stage' = [stage EXCEPT ![t] = "submitted"]
    /\ handles' = [x \in Operands |-> handles[x] + IF x \in Owned THEN 1 ELSE 0]
    /\ UNCHANGED <<frame, readDead>>

(* The frame holds its operands until all have been submitted. *)
\* = raddle_runtime::block::Buffer::drop
drop(x) ==
    /\ x \in frame /\ \A t \in Threads : stage[t] # "called"
    /\ frame' = frame \ {x}
    /\ handles' = [handles EXCEPT ![x] = @ - 1]
    /\ UNCHANGED <<stage, readDead>>

lock(t) ==
    /\ stage[t] = "submitted" /\ \A other \in Threads : stage[other] # "locked"
    /\ stage' = [stage EXCEPT ![t] = "locked"]
    /\ UNCHANGED <<handles, frame, readDead>>

encode(t) ==
    /\ stage[t] = "locked"
    /\ stage' = [stage EXCEPT ![t] = "encoded"]
    /\ readDead' = {x \in Operands : handles[x] = 0}
    /\ UNCHANGED <<handles, frame>>

complete(t) ==
    /\ stage[t] = "encoded"
    /\ stage' = [stage EXCEPT ![t] = "over"]
    /\ handles' = [x \in Operands |-> handles[x] - IF x \in Owned THEN 1 ELSE 0]
    /\ UNCHANGED <<frame, readDead>>

Next ==
    \/ \E t \in Threads : submit(t) \/ lock(t) \/ encode(t) \/ complete(t)
    \/ \E x \in Operands : drop(x)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

OperandsLive == readDead = {}

NothingIsLeft ==
    (frame = {} /\ \A t \in Threads : stage[t] = "over") => \A x \in Operands : handles[x] = 0
=============================================================================
