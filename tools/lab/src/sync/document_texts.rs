//! The texts of the document `specs/sync-table.md` between its tables.

pub(super) const HEAD: &str = "\
# Game state in figures

`cargo run --release -- lab sync --markdown` generates this document, and `./check --tables` repeats all runs and
compares. The tests repeat the first two seeds, with the figures at the end. Time is virtual and all randomness comes
from seeds, so that the figures are the same everywhere.

The world has the size and the rules of a bachelor thesis (Fribourg, 2018): 32 m by 32 m with cubes that four players
push, attract and repel (`tools/worlds`, with the physics of rapier3d). The players press at random. States are sent 20
times a second. A message arrives after 50 ms; its acknowledgement takes 50 ms more, and a loss is reported after
150 ms. Messages have at most 1,200 bytes.

Columns with bytes and the payload count messages, without the headers of datagrams. The path counts 68 bytes more for
each datagram, with every method: IPv4, UDP, encryption, acknowledgements and the channel. The error is the distance
between an object of the client and the server's object 50 ms ago: the 99th percentile over 20 seconds. No client
interpolates or simulates: this is what a client knows, not what it shows. The clients of the thesis's state
synchronisation do simulate, so that its error here is larger than in its own world. `worst` is the worst of 40 seeds,
the other figures are means.

";

pub(super) const MESSAGE_GOALS_TEXT: &str = "
## Goals

In the world in which the goals were set, 70 % of 504 objects and 83 % of 1,001 objects were awake. A figure may be at
most its goal, and a goal is reached if the mean of all seeds is within it.

";

pub(super) const CUBES_TEXT: &str = "
## The world of cubes

These figures are measured in the world of cubes (`slipgate-worlds`): rigid bodies on a floor of 32 m by 32 m, and four
players that push, attract and repel them. Messages take 50 ms. `worst` is the worst of 40 seeds, the figures beside it
are means. All errors and jumps are 99th percentiles over all cubes, also those at rest.

### Server and clients simulate

The thesis sends 20 states of 54 bytes in each message, chosen by its priorities, and sets them 4 messages after they
arrived. It gets the keys of the players since the message before, which cost it nothing here; the thesis itself sent
none. `slipgate-sync` sends what changed, and all keys that are not confirmed. 104 cubes. The path has 68 bytes for
each datagram. `simulated` is the distance to the server's cube at the same tick, `shown` that with smoothing,
and `jump` how far a corrected cube moves within the frame, without its own motion. The delay is that behind the
quickest messages. `astray` is the longest time for which one cube is more than 25 cm off, without a pause. Each run has
25 seconds, of which the first 5 are not measured.

";

pub(super) const PLAYOUT_TEXT: &str = "
### Clients only show

The thesis sends 10 snapshots a second, and shows them 100 ms after they arrived. Jitter is up to 10 ms. A frame is
starved if the newest state is older than the moment that it shows. The error is the distance to the server's cube at
the tick shown. A cube with the same pose as in the state before is sent as one at rest. Each run has 90 seconds.
`at first` are the 5 s after the first frame that shows something, `early` those from then to 30 s, and all else is
measured after 30 s. The delay is that behind messages without jitter.

Two more paths have no goal. One loses in runs of 100 ms in the mean: nothing arrives for 13 % of the time. The other
gets slower by 10 ms a second, so that the timeline must run at 99 %.

";

pub(super) const PREDICTION_TEXT: &str = "
### Own cube

A client simulates 5 ticks ahead of the server with its own keys, and with the keys of the others as far as the server
has sent them: it has them 2 ticks early. States of any cube that differ by more than 2 mm or 2 cm/s put its whole world
back, and the ticks since then are simulated again. A cube that rests at one end only, and stands still at the other,
does not differ: states do not say since when a cube has been still, so most states differed in that alone. `simulated`
and `shown` are the distance of the own cube to the server's at the same tick. Runs of 25 seconds, of which the first 5
are not measured.

In the rows with rounding, server and client set their cubes to the precision of messages after each tick
(`Schema::snap_vector` and `snap_rotation`). That makes another world of each seed, so that only means can be compared.
In the last row the client has all keys at once, which no network can do: the rest of the error is due to keys that
arrive later than the client needs them, and rounding does not help against it. What differs with all keys are cubes
that touch: a state has no contacts, so a cube that is set to a state goes on a little differently.

";

pub(super) const REWIND_TEXT: &str = "
### Lag compensation

A client aims at the middle of a moving cube as the frame on its screen shows it, about 8 times a second. The next frame
makes the input, for the tick of `InputClock`. Inputs get lost as often as states, `InputLog` repeats them, and the
reports of `InputBuffer` rule the clock. At the tick of the input the server looks up where the cube was for that
client, at most 250 ms back. `error` is how far that is from what the client showed, a shot misses beyond 45 cm, and
`missed without` are shots that would miss the cube where it is by then. `late` are shots of which the input comes after
its tick, or not at all: the server does not play them, and they are not in the columns before. `lead` is how far ahead
of the server inputs are made: the way of 50 ms, the jitter, half a tick, on average half a tick until the next frame,
and the time until an input that got lost arrives with a later message. Runs as
above.

";

pub(super) const FORMATS_TEXT: &str = "
### Formats of other libraries

What a state costs in other formats, with the poses alone: 104 cubes, 20 states a second, no losses. The other libraries
are not run. The layouts of bevy_replicon and naia were compared with their sources, those of renet and
lightyear were not. What a library adds for acknowledgements and channels, what it repeats until it is acknowledged, and
the two bits around each component of naia are not counted.

";

pub(super) const INPUTS_TEXT: &str = "
### Inputs

A client sends its keys 60 times a second for 10 minutes. 2 % of the messages get lost in both directions, and jitter is
up to 20 ms. The client's clock is quicker or slower than the server's by 200 ppm. `late` are ticks that the server
plays without their input after the first 30 seconds, `jumps` those of the client's clock, and `lead` is how far
ahead of the server inputs are made, less the path's 50 ms.

";

pub(super) const FANOUT_TEXT: &str = "
## Many clients

One server sends 1,000 objects, of which 83 % fly around with up to 4 m/s along each axis, to 200 clients, 20 states a
second: the world of the benchmark `game_state`, which measures the share of a processor and the allocations. One way
takes 25 to 150 ms, the report of a message comes after a round trip, and that of a loss 50 ms later. A client has room
for all that moved, for two messages of 1,100 bytes a state, or for one.

An encoding is made once for all clients with the same knowledge of an object. `records` are the objects in all messages
of a state: as many encodings are needed at least if each client has its own. `whole objects` is the naive form: the
server encodes the objects without a reference to earlier states, once for all clients, and sends all of them in each
state, or by turns as many as the room holds.

`oldest` is how long ago a newer state of some object could have been at a client that does not have it: the 99th
percentile over clients and states, and the worst of all. The error is the distance to the server's object in the newest
state that could be there. Each run has 5 seconds, of which the first 2 are not measured. Then the world stops, and
clients get what they lack: `differ` counts those that do not have the server's exact states in the end.

";

pub(super) const JOIN_TEXT: &str = "
## Clients that join

A client joins a world that has run for 6 seconds, over a path with a rate and losses. One way takes 50 ms, and the
server sends as many bytes for each state as the rate allows. `has all` is the time until the client has every object,
from the state on that it gets first. `whole state` is the time that the bytes of all objects at that moment take on the
path, with headers: `share` is how many times longer the join takes, and `bytes` is how much the client was sent, as a
multiple of them. `shows all` is the time until a frame shows every object, with `PlayoutClock` and `PlayoutSamples`.

The server learns of a loss 150 ms after it sent the message. An object that moves is in the next state again, so that a
client waits for an object that stands still, or for a place in a thin path. A client that joins again was there, left 5
seconds before, and has called `Replica::reset`: the server has forgotten it, too. `after 5 s without messages` is a
client to which all messages got lost: all that it had is too old for a difference. It needs what moved since, and the
server learns of the last losses at first.

There are four clients in the worlds of cubes before. With the bodies there are 200 clients in the end. Those that are
there before have 1 Mbit/s, and lose 2 % of their messages. `messages that change` are those of theirs that have other
bytes, or arrive at another time, than in the same run without new clients.

";

pub(super) const GOALS_TEXT: &str = "
## All other goals

`mean` and `worst` are those of the tables above. Figures without a goal are for comparison. `cargo run --release -- lab
sync --goals` prints this table with the goals of messages, and ends with the exit status 1 if one is missed. `./check
--tables` fails then, too. Two figures are no part of it, because they are not the same on each machine: `cargo bench -p
slipgate-tests --bench game_state` measures the share of a processor (1,000 objects, 200 clients, 20 states a second: at
most 30 % of a core), and the allocations of a tick (none).

";

pub(super) const SAMPLE_HEAD: &str = "
## The first two seeds

The tests measure these rows again: the tables above with two seeds.

";
