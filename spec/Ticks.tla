------------------------------- MODULE Ticks -------------------------------
(*
Ticks, marks and the reuse of memory, as `crates/runtime` has them.

Streams number their work. A tick is <<stream, number>>. A block of memory keeps the tick of its last write and of its last
read on each stream, for life; whoever submits an op waits for what the marks of its operands say and stamps its own tick.
So memory may be given out again while uses of it are in flight.

Operators and actions have the names of the functions that they stand for. The path of the function stands in the line above
each, after `=`; a test of `xtask` looks for it. What starts with `device_` and `foreign_` is done by the device
and by code that isn't ours.

One submission is one step here: no thread sees half of it. The models under loom check that the shipped code keeps to that
(`claim_read`, `claim_write` and `stamp` of several threads on the same marks). Here many submissions, frees, allocations and
the device's progress meet in every order, on several streams and blocks.

`Fault` is "" or the name of a planted fault of `crates/sync/src/faults.rs`, at the place where the code has it.
*)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Streams,
    Blocks,
    Noted,      \* The streams on which code that isn't ours may use memory.
    OpCountMax, \* So many ops in all.
    Reuse,      \* Are blocks allocated and freed? If not, they are held all the time.
    Fault

VARIABLES
    life,     \* Of each block: "free", "held", "freeing" (its last handle is gone), "gone" (the device has it again).
    marks,    \* Of each block: its last write; its last read, while one stream reads; or one for each stream.
    recorded, \* Of each block: the streams on which code that isn't ours may use it.
    clock,    \* Of each stream: for each stream the number that its next op is ordered behind.
    history,  \* Of each stream: its clocks with the numbers of the ops from which on they hold.
    sequence, \* Of each stream: the number of its last op.
    queue,    \* Of each stream: what the device was given and isn't over, in order.
    complete, \* Of each stream: the number of the last op that is over.
    room      \* How many ops there may still be.

vars == <<life, marks, recorded, clock, history, sequence, queue, complete, room>>

None == <<0, 0>>
Zero == [s \in Streams |-> 0]
Max(a, b) == IF a > b THEN a ELSE b
Unmarked == [write |-> None, home |-> None, shared |-> FALSE, reads |-> Zero]

Init ==
    /\ life = [b \in Blocks |-> IF Reuse THEN "free" ELSE "held"]
    /\ marks = [b \in Blocks |-> Unmarked]
    /\ recorded = [b \in Blocks |-> {}]
    /\ clock = [s \in Streams |-> Zero]
    /\ history = [s \in Streams |-> << >>]
    /\ sequence = Zero
    /\ queue = [s \in Streams |-> << >>]
    /\ complete = Zero
    /\ room = OpCountMax

-----------------------------------------------------------------------------
\* = raddle_runtime::stream::StreamInner::is_complete
is_complete(tick) == tick = None \/ tick[2] <= complete[tick[1]]

-----------------------------------------------------------------------------
(* The waits of one op: what its stream knows, and for each stream the number that it waits for. *)

\* = raddle_runtime::tick::Clock::raise
raise(known, s, n) == [known EXCEPT ![s] = Max(@, n)]

\* = raddle_runtime::tick::Clock::merge
merge(known, other) == [s \in Streams |-> Max(known[s], other[s])]

\* = raddle_runtime::submit::Order::wait
wait(order, tick) ==
    LET s == tick[1]
        is_of(i) == Fault = "current_clock" \/ history[s][i].from <= tick[2]
        versions == {i \in 1..Len(history[s]) : is_of(i)}
        known == IF versions = {} THEN Zero
                 ELSE history[s][CHOOSE i \in versions : \A j \in versions : j <= i].clock
    IN [clock |-> raise(merge(order.clock, known), s, tick[2]), waits |-> raise(order.waits, s, tick[2])]

\* = raddle_runtime::submit::Order::is_behind
is_behind(order, own, tick) ==
    \/ tick[1] = own
    \/ tick[2] <= order.clock[tick[1]]
    \/ is_complete(tick)
    \/ Fault = "elide_enqueued"

\* = raddle_runtime::submit::Order::behind
behind(order, own, tick) ==
    IF tick = None \/ tick[1] = own THEN order
    ELSE IF is_behind(order, own, tick)
    THEN [order EXCEPT !.clock = raise(@, tick[1], Max(tick[2], IF is_complete(tick) THEN complete[tick[1]] ELSE 0))]
    ELSE wait(order, tick)

-----------------------------------------------------------------------------
(* Marks. A claim is the op's waits so far, and the marks as they will be when it is stamped. *)

(* The mark of the only stream that reads may be handed over to a stream that is ordered behind it. Whether it is, and not
   given up for a mark for each stream, is chosen by a count, which is `handover` here. *)
\* = raddle_runtime::marks::Marks::claim_read
claim_read(order, own, tick, mark, handover) ==
    LET last == mark.home
        hands_over == last[1] # own /\ last # None
                      /\ (Fault = "one_read_mark" \/ (handover /\ is_behind(order, own, last)))
        is_home == ~mark.shared /\ (last = None \/ last[1] = own \/ hands_over)
        moved == IF last = None THEN mark.reads ELSE [mark.reads EXCEPT ![last[1]] = last[2]]
        waits == IF Fault = "no_wait_after_write" THEN order ELSE behind(order, own, mark.write)
        stamped == IF Fault = "borrowed_operand" THEN None ELSE tick
    IN [order |-> waits,
        mark |-> IF is_home THEN [mark EXCEPT !.home = stamped]
                 ELSE [mark EXCEPT !.shared = TRUE, !.home = None, !.reads = [moved EXCEPT ![own] = stamped[2]]]]

Reads(mark) == {<<s, mark.reads[s]>> : s \in {s \in Streams : mark.reads[s] > 0}}

RECURSIVE behind_all(_, _, _)
behind_all(order, own, ticks) ==
    IF ticks = {} THEN order
    ELSE LET tick == CHOOSE tick \in ticks : TRUE
         IN behind_all(behind(order, own, tick), own, ticks \ {tick})

(* The write is ordered behind the reads, so that it stands for them. *)
\* = raddle_runtime::marks::Marks::claim_write
claim_write(order, own, tick, mark) ==
    LET reads == IF Fault = "no_wait_after_read" THEN {} ELSE Reads(mark) \cup ({mark.home} \ {None})
    IN [order |-> behind(behind_all(order, own, reads), own, mark.write),
        mark |-> [mark EXCEPT !.write = tick, !.home = None, !.reads = Zero]]

\* = raddle_runtime::marks::Marks::uses
uses(mark, own) ==
    LET ticks == Reads(mark) \cup ({mark.home, mark.write} \ {None})
    IN IF \A tick \in ticks : is_complete(tick) THEN "over"
       ELSE IF \A tick \in ticks : is_complete(tick) \/ tick[1] = own THEN "ordered"
       ELSE "pending"

-----------------------------------------------------------------------------
(* The device. An item is told what it waits for. It has to run behind all that touches the same memory before it, unless
   both only read. `after` says which items these are, by stream and place in the queue: it is what has to be shown, not what
   anybody is told.

   Of foreign items others see to that, and they have no number. Once the memory is given out again they count as readers of
   it, whatever they did: who reads memory that nobody has written yet reads nothing that is worth an order. *)

InFlight == UNION {{<<s, i>> : i \in 1..Len(queue[s])} : s \in Streams}
ItemAt(at) == queue[at[1]][at[2]]

Item(number, waits, reads, writes) ==
    [sequence |-> number, waits |-> waits, reads |-> reads, writes |-> writes, held |-> {},
     after |-> {at \in InFlight : \/ ItemAt(at).writes \cap (reads \cup writes) # {}
                                \/ ItemAt(at).reads \cap writes # {}}]
Foreign(b) == [sequence |-> 0, waits |-> Zero, reads |-> {}, writes |-> {}, held |-> {b}, after |-> {}]

CanBegin(s) == queue[s] # << >> /\ \A t \in Streams : Head(queue[s]).waits[t] <= complete[t]

(* What is over is gone from the queue, and from what others have to be behind. *)
device_runs(s) ==
    LET moved(after) == {IF at[1] = s THEN <<s, at[2] - 1>> ELSE at : at \in after \ {<<s, 1>>}}
        rest(t) == IF t = s THEN Tail(queue[s]) ELSE queue[t]
    IN /\ CanBegin(s)
       /\ complete' = [complete EXCEPT ![s] = Max(@, Head(queue[s]).sequence)]
       /\ queue' = [t \in Streams |-> [i \in DOMAIN rest(t) |-> [rest(t)[i] EXCEPT !.after = moved(@)]]]
       /\ UNCHANGED <<life, marks, recorded, clock, history, sequence, room>>

-----------------------------------------------------------------------------
(* Submission. *)

Start(s) == [clock |-> clock[s], waits |-> Zero]
NextTick(s) == <<s, sequence[s] + 1>>

(* Puts an item behind what was ordered, and publishes its number. What the stream learnt is kept with that. *)
\* = raddle_runtime::submit::Stream::submit
submit(s, order, reads, writes) ==
    /\ sequence' = [sequence EXCEPT ![s] = @ + 1]
    /\ clock' = [clock EXCEPT ![s] = order.clock]
    /\ history' = IF order.waits = Zero THEN history
                  ELSE [history EXCEPT ![s] = Append(@, [from |-> sequence[s] + 1, clock |-> order.clock])]
    /\ queue' = [queue EXCEPT ![s] = Append(@, Item(sequence[s] + 1, order.waits, reads, writes))]
    /\ UNCHANGED complete

read_op(s, b, handover) ==
    LET read == claim_read(Start(s), s, NextTick(s), marks[b], handover)
    IN /\ room > 0 /\ life[b] = "held"
       /\ submit(s, read.order, {b}, {})
       /\ marks' = [marks EXCEPT ![b] = read.mark]
       /\ room' = room - 1
       /\ UNCHANGED <<life, recorded>>

write_op(s, b) ==
    LET write == claim_write(Start(s), s, NextTick(s), marks[b])
    IN /\ room > 0 /\ life[b] = "held"
       /\ submit(s, write.order, {}, {b})
       /\ marks' = [marks EXCEPT ![b] = write.mark]
       /\ room' = room - 1
       /\ UNCHANGED <<life, recorded>>

read_write_op(s, b, c, handover) ==
    LET read == claim_read(Start(s), s, NextTick(s), marks[b], handover)
        write == claim_write(read.order, s, NextTick(s), marks[c])
    IN /\ room > 0 /\ life[b] = "held" /\ life[c] = "held" /\ b # c
       /\ submit(s, write.order, {b}, {c})
       /\ marks' = [marks EXCEPT ![b] = read.mark, ![c] = write.mark]
       /\ room' = room - 1
       /\ UNCHANGED <<life, recorded>>

-----------------------------------------------------------------------------
(* Code that isn't ours may use memory on a stream that was noted. What it does is ordered with that stream and with nothing
   else, and has no number. Whoever holds the block sees to its order with other uses, until the block is freed. *)

foreign_use(s, b) ==
    /\ room > 0 /\ life[b] = "held" /\ s \in recorded[b]
    /\ queue' = [queue EXCEPT ![s] = Append(@, Foreign(b))]
    /\ room' = room - 1
    /\ UNCHANGED <<life, marks, recorded, clock, history, sequence, complete>>

(* An empty op that reads the block: behind all that is on the stream, with or without a number. *)
\* = raddle_runtime::submit::StreamInner::fence
fence(s, b) ==
    LET read == claim_read(Start(s), s, NextTick(s), marks[b], FALSE)
    IN submit(s, read.order, {}, {}) /\ marks' = [marks EXCEPT ![b] = read.mark]

NoFence == UNCHANGED <<marks, clock, history, sequence, queue, complete>>

\* = raddle_runtime::block::Block::record
record(s, b) ==
    /\ room > 0 /\ life[b] = "held" /\ s \notin recorded[b]
    /\ recorded' = [recorded EXCEPT ![b] = @ \cup {s}]
    /\ IF Fault = "fence_at_record" THEN fence(s, b) ELSE NoFence
    /\ room' = room - 1
    /\ UNCHANGED life

-----------------------------------------------------------------------------
(* The memory itself. Nothing here waits for the device. *)

\* = raddle_runtime::alloc::free
free(b) ==
    /\ Reuse /\ life[b] = "held"
    /\ life' = [life EXCEPT ![b] = "freeing"]
    /\ UNCHANGED <<marks, recorded, clock, history, sequence, queue, complete, room>>

\* = raddle_runtime::alloc::fence_recorded
fence_recorded(s, b) ==
    /\ life[b] = "freeing" /\ s \in recorded[b]
    /\ recorded' = [recorded EXCEPT ![b] = @ \ {s}]
    /\ IF Fault = "fence_at_record" THEN NoFence ELSE fence(s, b)
    /\ UNCHANGED <<life, room>>

(* From now on what foreign code does with the memory counts: the next life has to be behind it. *)
\* = raddle_runtime::alloc::put_back
put_back(b, own) ==
    LET forgets == \/ Fault = "free_without_fence"
                   \/ (Fault = "forget_ordered" /\ uses(marks[b], own) = "ordered")
        counts(item) == IF item.held = {b} THEN [item EXCEPT !.reads = {b}, !.held = {}] ELSE item
    IN /\ life[b] = "freeing" /\ recorded[b] = {}
       /\ life' = [life EXCEPT ![b] = "free"]
       /\ marks' = IF forgets THEN [marks EXCEPT ![b] = Unmarked] ELSE marks
       /\ queue' = [s \in Streams |-> [i \in DOMAIN queue[s] |-> counts(queue[s][i])]]
       /\ UNCHANGED <<recorded, clock, history, sequence, complete, room>>

(* Gives a free block out, whatever is in flight: its marks stay, but for those of uses that are over. *)
\* = raddle_runtime::alloc::DeviceInner::allocate
allocate(b, own) ==
    LET left == uses(marks[b], own)
        forgets == left = "over" \/ (Fault = "forget_marks" /\ left = "pending")
    IN /\ life[b] = "free"
       /\ life' = [life EXCEPT ![b] = "held"]
       /\ marks' = IF forgets THEN [marks EXCEPT ![b] = Unmarked] ELSE marks
       /\ UNCHANGED <<recorded, clock, history, sequence, queue, complete, room>>

\* = raddle_runtime::alloc::DeviceInner::release_unused
release_unused(b) ==
    /\ life[b] = "free"
    /\ uses(marks[b], None) = "over" \/ Fault = "release_in_flight"
    /\ life' = [life EXCEPT ![b] = "gone"]
    /\ marks' = [marks EXCEPT ![b] = Unmarked]
    /\ UNCHANGED <<recorded, clock, history, sequence, queue, complete, room>>

-----------------------------------------------------------------------------

Next ==
    \/ \E s \in Streams : device_runs(s)
    \/ \E s \in Streams, b \in Blocks : \/ \E handover \in BOOLEAN : read_op(s, b, handover)
                                       \/ write_op(s, b)
                                       \/ put_back(b, s)
                                       \/ allocate(b, s)
    \/ \E s \in Streams, b, c \in Blocks, handover \in BOOLEAN : read_write_op(s, b, c, handover)
    \/ \E s \in Noted, b \in Blocks : record(s, b) \/ foreign_use(s, b) \/ fence_recorded(s, b)
    \/ \E b \in Blocks : free(b) \/ release_unused(b)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds. *)

(* T1, T2: what may run is behind all that it has to be behind, in this life of the memory and in former ones. *)
Ordered == \A s \in Streams : CanBegin(s) => Head(queue[s]).after = {}

(* T3: of memory that the device has again nothing is in flight. *)
OperandsLive ==
    \A at \in InFlight : LET item == ItemAt(at)
                        IN \A b \in item.reads \cup item.writes \cup item.held : life[b] # "gone"

(* T5: a wait names what the device has been given, and something can go on. *)
Progress ==
    /\ \A at \in InFlight : \A s \in Streams : ItemAt(at).waits[s] <= sequence[s]
    /\ InFlight # {} => \E s \in Streams : CanBegin(s)
=============================================================================
