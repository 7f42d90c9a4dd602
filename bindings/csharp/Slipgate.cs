// Slipgate for C#: one file over the native library `slipgate`. A game polls, as with slipgate.h, whose rules hold:
// bytes of an event are lent until the next event or turn, and one thread at a time uses an object.
//
// Needs `unsafe` code and C# 7.3. The loop makes no garbage: events are values on the stack. Sends return a `Status`;
// only constructors and mistakes of the caller throw. License: MIT OR Apache-2.0.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;

namespace Slipgate
{
    /// <summary>What a call returns; negative values are errors.</summary>
    public enum Status
    {
        Done = 0, None = 1, Argument = -1, Io = -2, Token = -3, TokenUsed = -4, Busy = -5, Gone = -6, Empty = -7,
        TooLarge = -8, Backlogged = -9, NoChannel = -10, WrongKind = -11, WrongTraffic = -12, Config = -13,
        NoServer = -14, Panic = -99,
    }

    /// <summary>The kind of an event. Ignore unknown ones.</summary>
    public enum EventKind : uint
    {
        Connected = 1, Payload = 2, Packet = 3, Message = 4, Receipt = 5, PacketAcked = 6, PacketLost = 7,
        TransferOffered = 8, TransferReceived = 9, TransferBroken = 10, TransferKept = 11, TransferDelivered = 12,
        TransferRefused = 13, Ended = 14, Redirected = 15,
    }

    /// <summary>The state of a client in the numbers of netcode 1.02.</summary>
    public enum ClientState
    {
        TokenExpired = -6, InvalidToken = -5, TimedOut = -4, ResponseTimedOut = -3, RequestTimedOut = -2, Denied = -1,
        Disconnected = 0, SendingRequest = 1, SendingResponse = 2, Connected = 3,
    }

    /// <summary>What happened to a message: the <see cref="NetEvent.Reason"/> of a receipt.</summary>
    public enum DeliveryStatus { Arrived = 1, Lost = 2, Expired = 3, Superseded = 4, ArrivedLate = 5 }

    /// <summary>Why a transfer was broken or refused: the <see cref="NetEvent.Reason"/> of these events.</summary>
    public enum TransferReason { Cancelled, Declined, TooLarge, Busy, NoMemory, WrongDigest }

    /// <summary>Why a connection ended: the <see cref="NetEvent.Reason"/> of these events.</summary>
    public enum CloseKind
    {
        Other, Left, Kicked, ServerStopped, DisconnectedByServer, TimedOut, ResponseTimedOut, RequestTimedOut, Denied,
        TokenExpired, InvalidToken, TakenOver, SequencesUsedUp, LayoutMismatch, VersionMismatch, NotASession, Violation,
        Accused,
    }

    /// <summary>The side that ended a connection or broke a transfer.</summary>
    public enum Side : uint { Local, Remote, Netcode }

    /// <summary>Which transfers a channel takes without a question.</summary>
    public enum Admission : uint { FromServer, All, None, Ask }

    /// <summary>The delivery guarantee of a channel.</summary>
    public enum ChannelKind : uint { Unreliable, Sequenced, ReliableUnordered, ReliableOrdered, Transfers }

    /// <summary>What connections carry.</summary>
    public enum TrafficKind : uint { Payloads, Packets, Channels }

    /// <summary>The error of a constructor.</summary>
    public sealed class SlipgateException : Exception
    {
        public readonly Status Status;
        public SlipgateException(Status status, string text) : base(text) { Status = status; }

        internal static void Check(int status, byte[] text = null)
        {
            if (status >= 0) return;
            int end = text == null ? 0 : Array.IndexOf(text, (byte)0);
            string reason = end > 0 ? Encoding.UTF8.GetString(text, 0, end)
                : Marshal.PtrToStringAnsi(Native.slipgate_status_text(status));
            throw new SlipgateException((Status)status, reason);
        }
    }

    /// <summary>The settings of a channel, from <see cref="Traffic.Add"/>.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Channel
    {
        internal uint Size;
        public uint Kind;
        internal IntPtr Name;
        public byte Priority, MaxTransfersAtOnce;
        public ushort Weight;
        public uint MaxMessageBytes, QueueBytes, QueueMessages, DeadlineMs, Flags, MaxTransferBytes;
        public Admission Admission;
    }

    /// <summary>The state of a path; a time of -1 is not known yet.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct PathStats
    {
        public double RoundTripMs, JitterMs, BaseRoundTripMs, QueueingMs, Loss, BytesPerSecond;
    }

    /// <summary>What may leave now, and what suits the path.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Budget
    {
        public ulong Bytes, MaxMessageBytes;
        public double PacketsPerSecond;
        public ulong PayloadBytes;
    }

    /// <summary>What a channel still takes.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Remaining { public uint Bytes, Messages, Receipts; }

    /// <summary>Options of a message, such as <c>new SendOptions { Receipt = 7 }</c>.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct SendOptions
    {
        internal uint Size, Flags;
        private ulong deadlineUs, key, receipt;
        public ulong DeadlineUs { set { deadlineUs = value; Flags |= 1; } }
        public ulong Key { set { key = value; Flags |= 2; } }
        public ulong Receipt { set { receipt = value; Flags |= 4; } }
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeTraffic
    {
        internal uint Size, Kind;
        internal IntPtr Channels;
        internal UIntPtr Count;
        internal uint Version, MaxPayloadBytes;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct NativeEvent
    {
        internal uint Kind, Channel;
        internal int Reason;
        internal uint By;
        internal ulong Client, Number, Label, Size;
        internal byte* Bytes;
        // A number of the size of a pointer. Mono calls a function for each conversion of a UIntPtr.
        internal void* Length;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct OutgoingMessage
    {
        internal ulong Client;
        internal byte* Bytes;
        internal void* Length;
        internal SendOptions* Options;
        internal uint Channel;
        internal int Status;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeCloseReason
    {
        internal int Kind;
        internal uint By, Code, Reserved;
        internal IntPtr Text;
        internal UIntPtr Length;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeServerConfig
    {
        internal uint Size, Slots;
        internal ulong ProtocolId;
        internal IntPtr Bind, Advertised, Keys;
        internal UIntPtr KeysLength;
        internal IntPtr Traffic, HistoryFile;
        internal uint MaxTokenLifetimeSeconds, TakeoverAfterMs, Flags, Reserved;
    }

    /// <summary>A client of a server.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public unsafe struct ClientInfo
    {
        public ulong ClientId;
        public uint ClientIndex;
        public ushort AddressFamily, Port;
        public fixed byte Address[16];
        public ulong ConnectedUs, SilentUs, BytesSent, BytesReceived;
        public fixed byte UserData[256];
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeClaims
    {
        internal uint Size, LifetimeSeconds, TimeoutSeconds, UserDataLength;
        internal ulong ProtocolId, ClientId;
        internal IntPtr Servers, UserData;
    }

    /// <summary>Something that happened. Valid until the next call of
    /// <c>TryNext</c> or <c>BeginTurn</c>, which the compiler does not check: it only keeps it on the stack.</summary>
    public readonly unsafe ref struct NetEvent
    {
        // Null for `default`. The memory is never given back to the system.
        private readonly NativeEvent* native;
        internal NetEvent(NativeEvent* native) { this.native = native; }
        public EventKind Kind { get { return native == null ? 0 : (EventKind)native->Kind; } }
        public byte Channel { get { return native == null ? (byte)0 : (byte)native->Channel; } }
        /// <summary>A <see cref="DeliveryStatus"/>, <see cref="TransferReason"/> or <see cref="CloseKind"/>.</summary>
        public int Reason { get { return native == null ? 0 : native->Reason; } }
        public Side By { get { return native == null ? 0 : (Side)native->By; } }
        public ulong Client { get { return native == null ? 0 : native->Client; } }
        public ulong Number { get { return native == null ? 0 : native->Number; } }
        public ulong Label { get { return native == null ? 0 : native->Label; } }
        public ulong Size { get { return native == null ? 0 : native->Size; } }
        /// <summary>The lent bytes; empty after <c>Dispose</c>. No content has more than 64 MiB.</summary>
        public ReadOnlySpan<byte> Bytes
        {
            [MethodImpl(MethodImplOptions.AggressiveInlining)]
            get { return native == null ? default : new ReadOnlySpan<byte>(native->Bytes, (int)native->Length); }
        }
        /// <summary>The bytes as a new string.</summary>
        public string Text()
        {
            if (native == null || native->Bytes == null) return "";
            return Encoding.UTF8.GetString(native->Bytes, (int)native->Length);
        }
    }

    /// <summary>Events that were taken with one call of the library, and are not yet the game's.</summary>
    internal unsafe struct EventQueue
    {
        internal const uint Capacity = 64;
        /// <summary>Memory of objects that have ended, for later ones. It is kept: a game that reads an event after the end
        /// of its object gets an event without bytes, or one of another object, but never reads freed memory.</summary>
        private static readonly Stack<IntPtr> Unused = new Stack<IntPtr>();
        private NativeEvent* memory;
        private NativeEvent* next, end;

        internal bool IsEmpty { get { return next == end; } }
        /// <summary>The events, and behind them one of no kind, which a caller gets when there is none.</summary>
        internal NativeEvent* Memory
        {
            get
            {
                if (memory == null) memory = TakeMemory();
                return memory;
            }
        }
        private static NativeEvent* TakeMemory()
        {
            lock (Unused)
                if (Unused.Count > 0) return (NativeEvent*)Unused.Pop();
            NativeEvent* created = (NativeEvent*)Marshal.AllocHGlobal((int)(Capacity + 1) * sizeof(NativeEvent));
            for (uint i = 0; i <= Capacity; i++) created[i] = default(NativeEvent);
            return created;
        }
        internal void Fill(UIntPtr events)
        {
            next = memory;
            end = memory + (uint)events;
        }
        [MethodImpl(MethodImplOptions.AggressiveInlining)]
        internal bool TryNext(out NetEvent @event)
        {
            bool found = next != end;
            @event = new NetEvent(found ? next++ : memory + Capacity);
            return found;
        }
        /// <summary>Forgets the lent bytes, before their memory is freed with the object.</summary>
        internal void End()
        {
            next = end = null;
            if (memory == null) return;
            for (uint i = 0; i < Capacity; i++)
            {
                memory[i].Bytes = null;
                memory[i].Length = null;
            }
            lock (Unused) Unused.Push((IntPtr)memory);
            memory = null;
        }
    }

    /// <summary>What connections carry: payloads, packets, or messages on channels.</summary>
    public sealed class Traffic : IDisposable
    {
        private readonly TrafficKind kind;
        private readonly uint version;
        private Channel[] channels = new Channel[0];
        private IntPtr copy;
        private bool isDisposed;

        /// <summary>The maximum payload of a datagram in bytes, 508 to 1,200; 0 for 1,200.</summary>
        public uint MaxPayloadBytes;

        public Traffic(TrafficKind kind = TrafficKind.Channels, uint version = 0)
        {
            Native.CheckAbi();
            this.kind = kind;
            this.version = version;
        }

        /// <summary>Adds a channel and returns its id.</summary>
        public byte Add(ChannelKind channelKind, string name, bool newestOnly = false)
        {
            if (isDisposed) throw new ObjectDisposedException("Traffic");
            if (channels.Length > byte.MaxValue) throw new InvalidOperationException("the id of a channel is a byte");
            IntPtr text = Native.Text(name);
            Channel channel;
            int status = Native.slipgate_channel_init(out channel, (uint)channelKind, text);
            if (status < 0) Marshal.FreeHGlobal(text);
            SlipgateException.Check(status);
            channel.Flags = newestOnly ? 1u : 0u;
            Array.Resize(ref channels, channels.Length + 1);
            channels[channels.Length - 1] = channel;
            return (byte)(channels.Length - 1);
        }

        /// <summary>Returns the settings of a channel for changes, before the next <see cref="Add"/>.</summary>
        public ref Channel this[byte channel] { get { return ref channels[channel]; } }

        internal NativeTraffic Fill()
        {
            // Its channels are gone: another layout would be refused by the server with a misleading reason.
            if (isDisposed) throw new ObjectDisposedException("Traffic");
            int size = Marshal.SizeOf(typeof(Channel));
            Marshal.FreeHGlobal(copy);
            copy = Marshal.AllocHGlobal(size * channels.Length + 1);
            for (int i = 0; i < channels.Length; i++) Marshal.StructureToPtr(channels[i], copy + i * size, false);
            return new NativeTraffic
            {
                Size = (uint)Marshal.SizeOf(typeof(NativeTraffic)), Kind = (uint)kind, Channels = copy,
                Count = (UIntPtr)(uint)channels.Length, Version = version, MaxPayloadBytes = MaxPayloadBytes,
            };
        }

        /// <summary>Frees the names. Clients and servers that were created with it stay valid.</summary>
        public void Dispose()
        {
            foreach (Channel channel in channels) Marshal.FreeHGlobal(channel.Name);
            Marshal.FreeHGlobal(copy);
            channels = new Channel[0];
            copy = IntPtr.Zero;
            isDisposed = true;
            GC.SuppressFinalize(this);
        }

        ~Traffic() { Dispose(); }
    }

    /// <summary>Messages for one call of the library, which on Mono takes much less time than a call for each message.
    /// Use it again: it makes garbage only while it grows.</summary>
    public sealed unsafe class MessageBatch
    {
        internal OutgoingMessage[] Messages;
        internal SendOptions[] Options = new SendOptions[0];
        // The contents, one behind the other.
        internal byte[] Bytes;
        private int count, optionCount, length;
        private bool isSent;

        /// <summary>Creates a batch with memory for this many messages and bytes. It grows beyond them.</summary>
        public MessageBatch(int messages = 64, int bytes = 16384)
        {
            Messages = new OutgoingMessage[messages];
            Bytes = new byte[bytes];
        }

        /// <summary>The number of messages: those of the last send until the next <c>Add</c>.</summary>
        public int Count { get { return count; } }

        /// <summary>Adds a message to the server, for <see cref="Client.SendMessages"/>. The first <c>Add</c> after a send
        /// begins a new batch.</summary>
        public void Add(byte channel, ReadOnlySpan<byte> message) { Add(0, channel, message); }
        public void Add(byte channel, ReadOnlySpan<byte> message, SendOptions options)
        {
            Add(0, channel, message, options);
        }
        /// <summary>Adds a message to a client, for <see cref="Server.SendMessages"/>. The first <c>Add</c> after a send
        /// begins a new batch.</summary>
        public void Add(ulong client, byte channel, ReadOnlySpan<byte> message)
        {
            if (isSent || count == Messages.Length || message.Length > Bytes.Length - length) MakeRoom(message.Length);
            fixed (byte* from = message, to = Bytes)
                Copy(from, to + length, message.Length);
            length += message.Length;
            ref OutgoingMessage added = ref Messages[count++];
            added.Client = client;
            added.Channel = channel;
            added.Length = (void*)(uint)message.Length;
            added.Options = null;
            added.Status = (int)Status.None;
        }
        /// <summary>Copies a message, which is short in most games. Mono needs less time for these steps than for a call of
        /// <c>Buffer.MemoryCopy</c>.</summary>
        private static void Copy(byte* from, byte* to, int bytes)
        {
            if (bytes > 256)
            {
                Buffer.MemoryCopy(from, to, bytes, bytes);
                return;
            }
            for (; bytes >= 16; bytes -= 16, from += 16, to += 16)
            {
                ((ulong*)to)[0] = ((ulong*)from)[0];
                ((ulong*)to)[1] = ((ulong*)from)[1];
            }
            for (; bytes > 0; bytes--) *to++ = *from++;
        }
        public void Add(ulong client, byte channel, ReadOnlySpan<byte> message, SendOptions options)
        {
            Add(client, channel, message);
            // Room for the options of each message: a busier turn than the first one makes no garbage.
            if (optionCount == Options.Length) Array.Resize(ref Options, Messages.Length);
            options.Size = (uint)sizeof(SendOptions);
            Options[optionCount] = options;
            // The number of the options; `Prepare` writes the pointer.
            Messages[count - 1].Options = (SendOptions*)(uint)++optionCount;
        }
        /// <summary>Returns the status of a message of the last send; <c>Status.None</c> if it was not sent.</summary>
        public Status StatusOf(int index)
        {
            if (index < 0 || index >= count) throw new ArgumentOutOfRangeException("index");
            return (Status)Messages[index].Status;
        }
        /// <summary>Removes the messages.</summary>
        public void Clear()
        {
            count = optionCount = length = 0;
            isSent = false;
        }

        private void MakeRoom(int bytes)
        {
            if (isSent) Clear();
            if (count == Messages.Length) Array.Resize(ref Messages, Math.Max(16, 2 * count));
            if (bytes > Bytes.Length - length) Array.Resize(ref Bytes, Math.Max(length + bytes, 2 * Bytes.Length));
        }

        /// <summary>Writes the pointers into the messages, and returns their number.</summary>
        internal void* Prepare(OutgoingMessage* messages, byte* bytes, SendOptions* options)
        {
            // A batch that was sent does not leave twice.
            if (isSent) Clear();
            for (int i = 0; i < count; i++)
            {
                messages[i].Bytes = bytes;
                bytes += (uint)messages[i].Length;
                if (messages[i].Options != null) messages[i].Options = options + ((uint)messages[i].Options - 1);
            }
            isSent = true;
            return (void*)(uint)count;
        }
    }

    /// <summary>Owns a client, and the memory of its events.</summary>
    public sealed class ClientHandle : SafeHandle
    {
        internal EventQueue Events;
        public ClientHandle() : base(IntPtr.Zero, true) { }
        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
        protected override bool ReleaseHandle()
        {
            Events.End();
            Native.slipgate_client_free(handle);
            return true;
        }
    }

    /// <summary>Owns a server, and the memory of its events.</summary>
    public sealed class ServerHandle : SafeHandle
    {
        internal EventQueue Events;
        public ServerHandle() : base(IntPtr.Zero, true) { }
        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
        protected override bool ReleaseHandle()
        {
            Events.End();
            Native.slipgate_server_free(handle);
            return true;
        }
    }

    /// <summary>Owns the content of a transfer.</summary>
    public sealed class TransferHandle : SafeHandle
    {
        public TransferHandle() : base(IntPtr.Zero, true) { }
        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
        protected override bool ReleaseHandle() { Native.slipgate_transfer_free(handle); return true; }
    }

    /// <summary>Owns a waker.</summary>
    public sealed class WakerHandle : SafeHandle
    {
        public WakerHandle() : base(IntPtr.Zero, true) { }
        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
        protected override bool ReleaseHandle() { Native.slipgate_waker_free(handle); return true; }
    }

    /// <summary>The content of a transfer: hashed once, shared by all clients that get it.</summary>
    public sealed unsafe class Transfer : IDisposable
    {
        internal readonly TransferHandle Handle;
        public Transfer(ReadOnlySpan<byte> bytes)
        {
            fixed (byte* first = bytes)
                SlipgateException.Check(Native.slipgate_transfer_new(first, (UIntPtr)(uint)bytes.Length, out Handle));
        }
        public void Dispose() { Handle.Dispose(); }
    }

    /// <summary>A game client.</summary>
    public sealed unsafe class Client : IDisposable
    {
        private readonly ClientHandle handle;
        /// <summary>The pointer of the handle, for calls that must be cheap; null after <c>Dispose</c>.</summary>
        private void* pointer;

        public Client(Traffic traffic = null)
        {
            Native.CheckAbi();
            byte[] error = new byte[256];
            NativeTraffic native = traffic == null ? new NativeTraffic() : traffic.Fill();
            fixed (byte* text = error)
                SlipgateException.Check(Native.slipgate_client_new(traffic == null ? null : &native, out handle, text,
                    (UIntPtr)(uint)error.Length), error);
            pointer = (void*)handle.DangerousGetHandle();
            GC.KeepAlive(traffic);
        }

        public void Dispose()
        {
            pointer = null;
            handle.Dispose();
        }

        private void* Pointer
        {
            get
            {
                if (pointer == null) Native.ThrowDisposed("Client");
                return pointer;
            }
        }

        public Status Connect(ReadOnlySpan<byte> token)
        {
            fixed (byte* first = token)
                return (Status)Native.slipgate_client_connect(handle, first, (UIntPtr)(uint)token.Length);
        }
        public Status Disconnect() { return (Status)Native.slipgate_client_disconnect(handle); }
        public Status Leave(ushort code, string text)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            fixed (byte* first = bytes)
                return (Status)Native.slipgate_client_leave(handle, code, first, (UIntPtr)(uint)bytes.Length);
        }
        public Status BeginTurn() { return (Status)Native.slipgate_client_begin_turn(handle); }
        public Status EndTurn() { return (Status)Native.slipgate_client_end_turn(handle); }
        public Status Flush() { return (Status)Native.slipgate_client_flush(handle); }
        public Status Wait(uint microseconds) { return (Status)Native.slipgate_client_wait(handle, microseconds); }

        /// <summary>Takes the next event of this turn. Returns false when there is none.</summary>
        public bool TryNext(out NetEvent @event)
        {
            if (handle.Events.IsEmpty) TakeEvents();
            return handle.Events.TryNext(out @event);
        }
        private void TakeEvents()
        {
            UIntPtr count = UIntPtr.Zero;
            Native.slipgate_client_next_events(Pointer, handle.Events.Memory, (UIntPtr)EventQueue.Capacity, &count);
            handle.Events.Fill(count);
            GC.KeepAlive(handle);
        }

        public Status Send(ReadOnlySpan<byte> payload)
        {
            fixed (byte* first = payload)
                return Native.Sent(handle, Native.slipgate_client_send(Pointer, first, (void*)(uint)payload.Length));
        }
        public Status SendPacket(ReadOnlySpan<byte> packet, out ushort sequence)
        {
            fixed (byte* first = packet)
                return Native.Sent(handle, Native.slipgate_client_send_packet(
                    Pointer, first, (void*)(uint)packet.Length, out sequence));
        }
        public Status SendMessage(byte channel, ReadOnlySpan<byte> message)
        {
            fixed (byte* first = message)
                return Native.Sent(handle, Native.slipgate_client_send_message(
                    Pointer, channel, first, (void*)(uint)message.Length, null));
        }
        public Status SendMessage(byte channel, ReadOnlySpan<byte> message, SendOptions options)
        {
            options.Size = (uint)sizeof(SendOptions);
            fixed (byte* first = message)
                return Native.Sent(handle, Native.slipgate_client_send_message(
                    Pointer, channel, first, (void*)(uint)message.Length, &options));
        }
        /// <summary>Sends the messages of a batch with one call. Returns the status of the first one that was refused;
        /// the batch has the status of each.</summary>
        public Status SendMessages(MessageBatch batch)
        {
            fixed (OutgoingMessage* messages = batch.Messages)
            fixed (byte* bytes = batch.Bytes)
            fixed (SendOptions* options = batch.Options)
                return Native.Sent(handle, Native.slipgate_client_send_messages(
                    Pointer, messages, batch.Prepare(messages, bytes, options)));
        }
        public Status SendTransfer(byte channel, Transfer transfer, ulong label, out uint id)
        {
            return (Status)Native.slipgate_client_send_transfer(handle, channel, transfer.Handle, label, out id);
        }
        public Status AcceptTransfer(byte channel, uint id)
        {
            return (Status)Native.slipgate_client_accept_transfer(handle, channel, id);
        }
        public Status RefuseTransfer(byte channel, uint id)
        {
            return (Status)Native.slipgate_client_refuse_transfer(handle, channel, id);
        }
        public Status CancelTransfer(byte channel, uint id)
        {
            return (Status)Native.slipgate_client_cancel_transfer(handle, channel, id);
        }
        public ClientState State { get { return (ClientState)Native.slipgate_client_state(handle); } }
        public static string StateName(ClientState state)
        {
            return Marshal.PtrToStringAnsi(Native.slipgate_client_state_name((int)state));
        }
        public bool TryGetPath(out PathStats path) { return Native.slipgate_client_path(handle, out path) == 0; }
        public bool TryGetBudget(out Budget budget) { return Native.slipgate_client_budget(handle, out budget) == 0; }
        public bool TryGetRemaining(byte channel, out Remaining remaining)
        {
            return Native.slipgate_client_remaining(handle, channel, out remaining) == 0;
        }
        /// <summary>Writes why the last connection ended, by which side, and with which code of its program.</summary>
        public bool TryGetCloseReason(out CloseKind kind, out Side by, out uint code)
        {
            NativeCloseReason reason;
            bool isKnown = Native.slipgate_client_close_reason(handle, out reason) == 0;
            kind = isKnown ? (CloseKind)reason.Kind : CloseKind.Other;
            by = isKnown ? (Side)reason.By : Side.Local;
            code = isKnown ? reason.Code : NoCode;
            return isKnown;
        }
        /// <summary>The code of a connection that ended without one.</summary>
        public const uint NoCode = 65536;
        /// <summary>Returns the sentence for the player, null while no connection has ended.</summary>
        public string CloseReason
        {
            get
            {
                NativeCloseReason reason;
                if (Native.slipgate_client_close_reason(handle, out reason) != 0) return null;
                return Encoding.UTF8.GetString((byte*)reason.Text, checked((int)(uint)reason.Length));
            }
        }
        public Status Discards(uint index, out ulong count, out string name)
        {
            IntPtr text;
            Status status = (Status)Native.slipgate_client_discards(handle, index, out count, out text);
            name = status == Status.Done ? Marshal.PtrToStringAnsi(text) : null;
            return status;
        }
    }

    /// <summary>The settings of a server.</summary>
    public sealed class ServerConfig
    {
        public ulong ProtocolId;
        public uint Slots = 32, MaxTokenLifetimeSeconds = 45, TakeoverAfterMs = 1000;
        /// <summary>Addresses, separated by commas.</summary>
        public string Bind, Advertised, HistoryFile;
        /// <summary>1 to 3 keys of 32 bytes each, newest first.</summary>
        public byte[] Keys;
        public Traffic Traffic;
        /// <summary>Accept tokens from before this start: for the first start of an instance only.</summary>
        public bool AcceptOldTokens;
    }

    /// <summary>A dedicated game server.</summary>
    public sealed unsafe class Server : IDisposable
    {
        private readonly ServerHandle handle;
        /// <summary>The pointer of the handle, for calls that must be cheap; null after <c>Dispose</c>.</summary>
        private void* pointer;

        public Server(ServerConfig config)
        {
            Native.CheckAbi();
            NativeServerConfig native;
            SlipgateException.Check(Native.slipgate_server_config_init(out native));
            NativeTraffic traffic = config.Traffic == null ? new NativeTraffic() : config.Traffic.Fill();
            byte[] error = new byte[256], keys = config.Keys ?? new byte[0];
            native.ProtocolId = config.ProtocolId;
            native.Slots = config.Slots;
            native.MaxTokenLifetimeSeconds = config.MaxTokenLifetimeSeconds;
            native.TakeoverAfterMs = config.TakeoverAfterMs;
            native.Flags = config.AcceptOldTokens ? 1u : 0u;
            native.KeysLength = (UIntPtr)(uint)keys.Length;
            native.Traffic = config.Traffic == null ? IntPtr.Zero : (IntPtr)(&traffic);
            native.Bind = Native.Text(config.Bind);
            native.Advertised = Native.Text(config.Advertised);
            native.HistoryFile = Native.Text(config.HistoryFile);
            try
            {
                fixed (byte* first = keys, text = error)
                {
                    native.Keys = (IntPtr)first;
                    SlipgateException.Check(
                        Native.slipgate_server_new(ref native, out handle, text, (UIntPtr)(uint)error.Length), error);
                    pointer = (void*)handle.DangerousGetHandle();
                        }
            }
            finally
            {
                Marshal.FreeHGlobal(native.Bind);
                Marshal.FreeHGlobal(native.Advertised);
                Marshal.FreeHGlobal(native.HistoryFile);
                GC.KeepAlive(config);
            }
        }

        public void Dispose()
        {
            pointer = null;
            handle.Dispose();
        }

        private void* Pointer
        {
            get
            {
                if (pointer == null) Native.ThrowDisposed("Server");
                return pointer;
            }
        }

        public Status BeginTurn() { return (Status)Native.slipgate_server_begin_turn(handle); }
        public Status EndTurn() { return (Status)Native.slipgate_server_end_turn(handle); }
        public Status Flush() { return (Status)Native.slipgate_server_flush(handle); }
        public Status Wait(uint microseconds) { return (Status)Native.slipgate_server_wait(handle, microseconds); }

        /// <summary>Takes the next event of this turn. Returns false when there is none.</summary>
        public bool TryNext(out NetEvent @event)
        {
            if (handle.Events.IsEmpty) TakeEvents();
            return handle.Events.TryNext(out @event);
        }
        private void TakeEvents()
        {
            UIntPtr count = UIntPtr.Zero;
            Native.slipgate_server_next_events(Pointer, handle.Events.Memory, (UIntPtr)EventQueue.Capacity, &count);
            handle.Events.Fill(count);
            GC.KeepAlive(handle);
        }

        public Status Send(ulong client, ReadOnlySpan<byte> payload)
        {
            fixed (byte* first = payload)
                return Native.Sent(handle, Native.slipgate_server_send(
                    Pointer, client, first, (void*)(uint)payload.Length));
        }
        public Status SendPacket(ulong client, ReadOnlySpan<byte> packet, out ushort sequence)
        {
            fixed (byte* first = packet)
                return Native.Sent(handle, Native.slipgate_server_send_packet(
                    Pointer, client, first, (void*)(uint)packet.Length, out sequence));
        }
        public Status SendMessage(ulong client, byte channel, ReadOnlySpan<byte> message)
        {
            fixed (byte* first = message)
                return Native.Sent(handle, Native.slipgate_server_send_message(
                    Pointer, client, channel, first, (void*)(uint)message.Length, null));
        }
        public Status SendMessage(ulong client, byte channel, ReadOnlySpan<byte> message, SendOptions options)
        {
            options.Size = (uint)sizeof(SendOptions);
            fixed (byte* first = message)
                return Native.Sent(handle, Native.slipgate_server_send_message(
                    Pointer, client, channel, first, (void*)(uint)message.Length, &options));
        }
        public Status Broadcast(byte channel, ReadOnlySpan<byte> message, ulong except = 0)
        {
            uint queued, refused;
            fixed (byte* first = message)
                return (Status)Native.slipgate_server_broadcast(
                    handle, channel, except, first, (UIntPtr)(uint)message.Length, out queued, out refused);
        }
        /// <summary>Sends the messages of a batch, each to its client, with one call. Returns the status of the first
        /// one that was refused; the batch has the status of each.</summary>
        public Status SendMessages(MessageBatch batch)
        {
            fixed (OutgoingMessage* messages = batch.Messages)
            fixed (byte* bytes = batch.Bytes)
            fixed (SendOptions* options = batch.Options)
                return Native.Sent(handle, Native.slipgate_server_send_messages(
                    Pointer, messages, batch.Prepare(messages, bytes, options)));
        }
        public Status SendTransfer(ulong client, byte channel, Transfer transfer, ulong label, out uint id)
        {
            return (Status)Native.slipgate_server_send_transfer(handle, client, channel, transfer.Handle, label, out id);
        }
        public Status AcceptTransfer(ulong client, byte channel, uint id)
        {
            return (Status)Native.slipgate_server_accept_transfer(handle, client, channel, id);
        }
        public Status RefuseTransfer(ulong client, byte channel, uint id)
        {
            return (Status)Native.slipgate_server_refuse_transfer(handle, client, channel, id);
        }
        public Status CancelTransfer(ulong client, byte channel, uint id)
        {
            return (Status)Native.slipgate_server_cancel_transfer(handle, client, channel, id);
        }
        public Status Kick(ulong client, string text, ushort code = 0)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            fixed (byte* first = bytes)
                return (Status)Native.slipgate_server_kick(handle, client, code, first, (UIntPtr)(uint)bytes.Length);
        }
        public Status Disconnect(ulong client) { return (Status)Native.slipgate_server_disconnect(handle, client); }
        public Status Stop(string text)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            fixed (byte* first = bytes)
                return (Status)Native.slipgate_server_stop(handle, first, (UIntPtr)(uint)bytes.Length);
        }
        /// <summary>Writes the handles of the clients and returns their number, at most the length of the span.</summary>
        public int Clients(Span<ulong> clients)
        {
            UIntPtr count;
            fixed (ulong* first = clients)
                Native.slipgate_server_clients(handle, first, (UIntPtr)(uint)clients.Length, out count);
            return Math.Min(clients.Length, checked((int)(uint)count));
        }
        public uint Connected
        {
            get { uint count; Native.slipgate_server_connected(handle, out count); return count; }
        }
        public bool TryFind(ulong clientId, out ulong client)
        {
            return Native.slipgate_server_find(handle, clientId, out client) == 0;
        }
        public bool TryGetInfo(ulong client, out ClientInfo info)
        {
            return Native.slipgate_server_client_info(handle, client, out info) == 0;
        }
        public bool TryGetPath(ulong client, out PathStats path)
        {
            return Native.slipgate_server_path(handle, client, out path) == 0;
        }
        public bool TryGetBudget(ulong client, out Budget budget)
        {
            return Native.slipgate_server_budget(handle, client, out budget) == 0;
        }
        public bool TryGetRemaining(ulong client, byte channel, out Remaining remaining)
        {
            return Native.slipgate_server_remaining(handle, client, channel, out remaining) == 0;
        }
        public Status AcceptNewClients(bool accept)
        {
            return (Status)Native.slipgate_server_accept_new_clients(handle, accept ? 1u : 0u);
        }
        /// <summary>Limits what is sent to all clients together, in bytes each second; 0 is no limit.</summary>
        public Status SetUplink(ulong bytesPerSecond)
        {
            return (Status)Native.slipgate_server_set_uplink(handle, bytesPerSecond);
        }
        public Status SetKeys(byte[] newestFirst)
        {
            fixed (byte* first = newestFirst)
                return (Status)Native.slipgate_server_set_keys(handle, first, (UIntPtr)(uint)newestFirst.Length);
        }
        public string Address(uint index = 0)
        {
            byte[] text = new byte[64];
            fixed (byte* first = text)
                if (Native.slipgate_server_address(handle, index, first, (UIntPtr)64u) != 0) return null;
            return Encoding.UTF8.GetString(text, 0, Array.IndexOf(text, (byte)0));
        }
        public Status Discards(uint index, out ulong count, out string name)
        {
            IntPtr text;
            Status status = (Status)Native.slipgate_server_discards(handle, index, out count, out text);
            name = status == Status.Done ? Marshal.PtrToStringAnsi(text) : null;
            return status;
        }
        /// <summary>Returns a handle for <see cref="Wake"/>, which ends a wait from any thread.</summary>
        public WakerHandle CreateWaker()
        {
            WakerHandle waker;
            SlipgateException.Check(Native.slipgate_waker_new(handle, out waker));
            return waker;
        }
        public static Status Wake(WakerHandle waker) { return (Status)Native.slipgate_waker_wake(waker); }
    }

    /// <summary>The native library.</summary>
    public static class NativeLibrary
    {
        /// <summary>Its version, such as 0.1.0.</summary>
        public static string Version { get { return Marshal.PtrToStringAnsi(Native.slipgate_version()); } }
    }

    public enum LogLevel : uint { Off, Error, Warn, Info, Debug }

    /// <summary>What the library logs: a dedicated server should show or store it.</summary>
    public static unsafe class Log
    {
        private const int MaxLineBytes = 1025;

        /// <summary>Keeps the lines up to this level from now on.</summary>
        public static Status SetLevel(LogLevel level) { return (Status)Native.slipgate_set_log_level((uint)level); }

        /// <summary>Takes the oldest line that waits; null if there is none.</summary>
        public static string NextLine()
        {
            byte* line = stackalloc byte[MaxLineBytes];
            if (Native.slipgate_next_log_line(line, (UIntPtr)MaxLineBytes) != (int)Status.Done) return null;
            int length = 0;
            while (line[length] != 0) length++;
            return Encoding.UTF8.GetString(line, length);
        }
    }

    /// <summary>Private keys, and connect tokens for development: in production a backend mints them.</summary>
    public static unsafe class Tokens
    {
        public static byte[] GenerateKey()
        {
            byte[] key = new byte[32];
            fixed (byte* first = key) SlipgateException.Check(Native.slipgate_key_generate(first));
            return key;
        }

        public static byte[] Issue(ulong protocolId, ulong clientId, string servers, byte[] key, string userData = "")
        {
            if (key.Length != 32) throw new ArgumentException("a key has 32 bytes", "key");
            byte[] token = new byte[2048], data = Encoding.UTF8.GetBytes(userData);
            IntPtr addresses = Native.Text(servers);
            try
            {
                fixed (byte* keyBytes = key, tokenBytes = token, dataBytes = data)
                {
                    NativeClaims claims = new NativeClaims
                    {
                        Size = (uint)sizeof(NativeClaims), UserDataLength = (uint)data.Length,
                        ProtocolId = protocolId, ClientId = clientId, Servers = addresses, UserData = (IntPtr)dataBytes,
                    };
                    SlipgateException.Check(Native.slipgate_token_issue(ref claims, keyBytes, tokenBytes));
                }
            }
            finally { Marshal.FreeHGlobal(addresses); }
            return token;
        }
    }

    /// <summary>The functions of slipgate.h, with its names. A test compares them. The calls for each message take
    /// pointers for objects and lengths: Mono calls a function for each conversion of an IntPtr or UIntPtr.</summary>
    internal static unsafe class Native
    {
#if (UNITY_IOS || UNITY_WEBGL) && !UNITY_EDITOR
        private const string Library = "__Internal";
#else
        private const string Library = "slipgate";
#endif
        private const uint Abi = 1;

        /// <summary>Compares the versions and the sizes of all structures, before anything else is called.</summary>
        internal static void CheckAbi()
        {
            if (slipgate_abi() != Abi)
                throw new SlipgateException(Status.Config, "the native library has another ABI than Slipgate.cs");
            int[] sizes =
            {
                sizeof(NativeEvent), sizeof(Channel), sizeof(NativeTraffic), sizeof(SendOptions), sizeof(PathStats),
                sizeof(Budget), sizeof(NativeCloseReason),
                sizeof(NativeServerConfig), sizeof(ClientInfo), sizeof(NativeClaims),
                sizeof(Remaining), sizeof(OutgoingMessage),
            };
            for (uint i = 0; i < sizes.Length; i++)
            {
                uint size = slipgate_size_of(i + 1);
                // A library without a server does not have its structures.
                bool isOfServer = i >= 7 && i <= 9;
                if (size != sizes[i] && (size != 0 || !isOfServer))
                    throw new SlipgateException(Status.Config, "a structure of Slipgate.cs has another size: " + (i + 1));
            }
        }

        /// <summary>Returns a text with a zero at its end, for Marshal.FreeHGlobal.</summary>
        internal static IntPtr Text(string text)
        {
            if (text == null) return IntPtr.Zero;
            byte[] bytes = Encoding.UTF8.GetBytes(text + "\0");
            IntPtr copy = Marshal.AllocHGlobal(bytes.Length);
            Marshal.Copy(bytes, 0, copy, bytes.Length);
            return copy;
        }

        /// <summary>Throws. Mono inlines no method that throws itself.</summary>
        internal static void ThrowDisposed(string name) { throw new ObjectDisposedException(name); }

        /// <summary>Returns the status of a send, and keeps the object alive until here.</summary>
        internal static Status Sent(SafeHandle handle, int status)
        {
            GC.KeepAlive(handle);
            return (Status)status;
        }

        [DllImport(Library)] internal static extern uint slipgate_abi();
        [DllImport(Library)] internal static extern IntPtr slipgate_version();
        [DllImport(Library)] internal static extern uint slipgate_size_of(uint structure);
        [DllImport(Library)] internal static extern IntPtr slipgate_status_text(int status);
        [DllImport(Library)] internal static extern int slipgate_set_log_level(uint level);
        [DllImport(Library)] internal static extern int slipgate_next_log_line(byte* text, UIntPtr capacity);
        [DllImport(Library)] internal static extern int slipgate_channel_init(out Channel channel, uint kind, IntPtr name);
        [DllImport(Library)] internal static extern int slipgate_transfer_new(byte* bytes, UIntPtr length, out TransferHandle transfer);
        [DllImport(Library)] internal static extern void slipgate_transfer_free(IntPtr transfer);

        [DllImport(Library)] internal static extern int slipgate_client_new(NativeTraffic* traffic, out ClientHandle client, byte* error, UIntPtr capacity);
        [DllImport(Library)] internal static extern void slipgate_client_free(IntPtr client);
        [DllImport(Library)] internal static extern int slipgate_client_connect(ClientHandle client, byte* token, UIntPtr length);
        [DllImport(Library)] internal static extern int slipgate_client_disconnect(ClientHandle client);
        [DllImport(Library)] internal static extern int slipgate_client_leave(ClientHandle client, ushort code, byte* text, UIntPtr length);
        [DllImport(Library)] internal static extern int slipgate_client_begin_turn(ClientHandle client);
        [DllImport(Library)] internal static extern int slipgate_client_end_turn(ClientHandle client);
        [DllImport(Library)] internal static extern int slipgate_client_flush(ClientHandle client);
        [DllImport(Library)] internal static extern int slipgate_client_wait(ClientHandle client, uint microseconds);
        [DllImport(Library)] internal static extern int slipgate_client_next_event(ClientHandle client, NativeEvent* native);
        [DllImport(Library)] internal static extern int slipgate_client_next_events(void* client, NativeEvent* events, UIntPtr capacity, UIntPtr* count);
        [DllImport(Library)] internal static extern int slipgate_client_send(void* client, byte* bytes, void* length);
        [DllImport(Library)] internal static extern int slipgate_client_send_packet(void* client, byte* bytes, void* length, out ushort sequence);
        [DllImport(Library)] internal static extern int slipgate_client_send_message(void* client, byte channel, byte* bytes, void* length, SendOptions* options);
        [DllImport(Library)] internal static extern int slipgate_client_send_messages(void* client, OutgoingMessage* messages, void* count);
        [DllImport(Library)] internal static extern int slipgate_client_send_transfer(ClientHandle client, byte channel, TransferHandle transfer, ulong label, out uint id);
        [DllImport(Library)] internal static extern int slipgate_client_accept_transfer(ClientHandle client, byte channel, uint id);
        [DllImport(Library)] internal static extern int slipgate_client_refuse_transfer(ClientHandle client, byte channel, uint id);
        [DllImport(Library)] internal static extern int slipgate_client_cancel_transfer(ClientHandle client, byte channel, uint id);
        [DllImport(Library)] internal static extern int slipgate_client_state(ClientHandle client);
        [DllImport(Library)] internal static extern IntPtr slipgate_client_state_name(int state);
        [DllImport(Library)] internal static extern int slipgate_client_path(ClientHandle client, out PathStats path);
        [DllImport(Library)] internal static extern int slipgate_client_budget(ClientHandle client, out Budget budget);
        [DllImport(Library)] internal static extern int slipgate_client_remaining(ClientHandle client, byte channel, out Remaining remaining);
        [DllImport(Library)] internal static extern int slipgate_client_close_reason(ClientHandle client, out NativeCloseReason reason);
        [DllImport(Library)] internal static extern int slipgate_client_discards(ClientHandle client, uint index, out ulong count, out IntPtr name);

        [DllImport(Library)] internal static extern int slipgate_server_config_init(out NativeServerConfig config);
        [DllImport(Library)] internal static extern int slipgate_server_new(ref NativeServerConfig config, out ServerHandle server, byte* error, UIntPtr capacity);
        [DllImport(Library)] internal static extern void slipgate_server_free(IntPtr server);
        [DllImport(Library)] internal static extern int slipgate_server_begin_turn(ServerHandle server);
        [DllImport(Library)] internal static extern int slipgate_server_end_turn(ServerHandle server);
        [DllImport(Library)] internal static extern int slipgate_server_flush(ServerHandle server);
        [DllImport(Library)] internal static extern int slipgate_server_wait(ServerHandle server, uint microseconds);
        [DllImport(Library)] internal static extern int slipgate_server_next_event(ServerHandle server, NativeEvent* native);
        [DllImport(Library)] internal static extern int slipgate_server_next_events(void* server, NativeEvent* events, UIntPtr capacity, UIntPtr* count);
        [DllImport(Library)] internal static extern int slipgate_server_broadcast(ServerHandle server, byte channel, ulong except, byte* bytes, UIntPtr length, out uint queued, out uint refused);
        [DllImport(Library)] internal static extern int slipgate_server_stop(ServerHandle server, byte* text, UIntPtr length);
        [DllImport(Library)] internal static extern int slipgate_server_clients(ServerHandle server, ulong* clients, UIntPtr capacity, out UIntPtr count);
        [DllImport(Library)] internal static extern int slipgate_server_connected(ServerHandle server, out uint count);
        [DllImport(Library)] internal static extern int slipgate_server_find(ServerHandle server, ulong clientId, out ulong client);
        [DllImport(Library)] internal static extern int slipgate_server_accept_new_clients(ServerHandle server, uint accept);
        [DllImport(Library)] internal static extern int slipgate_server_set_uplink(ServerHandle server, ulong bytesPerSecond);
        [DllImport(Library)] internal static extern int slipgate_server_set_keys(ServerHandle server, byte* keys, UIntPtr length);
        [DllImport(Library)] internal static extern int slipgate_server_address(ServerHandle server, uint index, byte* text, UIntPtr capacity);
        [DllImport(Library)] internal static extern int slipgate_server_discards(ServerHandle server, uint index, out ulong count, out IntPtr name);
        [DllImport(Library)] internal static extern int slipgate_server_send(void* server, ulong client, byte* bytes, void* length);
        [DllImport(Library)] internal static extern int slipgate_server_send_packet(void* server, ulong client, byte* bytes, void* length, out ushort sequence);
        [DllImport(Library)] internal static extern int slipgate_server_send_message(void* server, ulong client, byte channel, byte* bytes, void* length, SendOptions* options);
        [DllImport(Library)] internal static extern int slipgate_server_send_messages(void* server, OutgoingMessage* messages, void* count);
        [DllImport(Library)] internal static extern int slipgate_server_send_transfer(ServerHandle server, ulong client, byte channel, TransferHandle transfer, ulong label, out uint id);
        [DllImport(Library)] internal static extern int slipgate_server_accept_transfer(ServerHandle server, ulong client, byte channel, uint id);
        [DllImport(Library)] internal static extern int slipgate_server_refuse_transfer(ServerHandle server, ulong client, byte channel, uint id);
        [DllImport(Library)] internal static extern int slipgate_server_cancel_transfer(ServerHandle server, ulong client, byte channel, uint id);
        [DllImport(Library)] internal static extern int slipgate_server_kick(ServerHandle server, ulong client, ushort code, byte* text, UIntPtr length);
        [DllImport(Library)] internal static extern int slipgate_server_disconnect(ServerHandle server, ulong client);
        [DllImport(Library)] internal static extern int slipgate_server_client_info(ServerHandle server, ulong client, out ClientInfo info);
        [DllImport(Library)] internal static extern int slipgate_server_path(ServerHandle server, ulong client, out PathStats path);
        [DllImport(Library)] internal static extern int slipgate_server_budget(ServerHandle server, ulong client, out Budget budget);
        [DllImport(Library)] internal static extern int slipgate_server_remaining(ServerHandle server, ulong client, byte channel, out Remaining remaining);

        [DllImport(Library)] internal static extern int slipgate_waker_new(ServerHandle server, out WakerHandle waker);
        [DllImport(Library)] internal static extern int slipgate_waker_wake(WakerHandle waker);
        [DllImport(Library)] internal static extern void slipgate_waker_free(IntPtr waker);
        [DllImport(Library)] internal static extern int slipgate_key_generate(byte* key);
        [DllImport(Library)] internal static extern int slipgate_token_issue(ref NativeClaims claims, byte* key, byte* token);
    }
}
