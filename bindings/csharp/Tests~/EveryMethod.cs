// Servers and clients of one program on loopback: echoes 10,000 messages without garbage, and checks what every method
// of Slipgate.cs does. Prints "ok" at the end.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Text;
using System.Threading;
using Slipgate;

static class EveryMethod
{
    const ulong ProtocolId = 7;
    const int Messages = 10000, PerTurn = 50, MaxTurns = 200000;

    static Server server;
    static Client client;
    static byte chat, maps;
    static ulong handle;
    static int echoes, receipts, transfers;
    static string sentence;
    static bool ended, left;
    static readonly byte[] message = new byte[100];
    static readonly MessageBatch replies = new MessageBatch();
    // With options, which need memory of a batch, too.
    static readonly SendOptions patient = new SendOptions { DeadlineUs = 600000000 };

    internal static void Check(bool condition, string what)
    {
        if (!condition) throw new Exception("not true: " + what);
    }

    static void Turn()
    {
        server.BeginTurn();
        NetEvent found;
        while (server.TryNext(out found))
        {
            if (found.Kind == EventKind.Connected) handle = found.Client;
            if (found.Kind == EventKind.Message) replies.Add(found.Client, found.Channel, found.Bytes, patient);
            if (found.Kind == EventKind.Ended) left = true;
        }
        Check(server.SendMessages(replies) == Status.Done, "the echoes");
        server.EndTurn();
        client.BeginTurn();
        while (client.TryNext(out found))
        {
            if (found.Kind == EventKind.Message)
            {
                echoes++;
                Check(found.Bytes.Length == message.Length, "the length");
            }
            if (found.Kind == EventKind.Receipt && found.Reason == (int)DeliveryStatus.Arrived) receipts++;
            if (found.Kind == EventKind.TransferReceived) transfers += found.Bytes.Length;
            if (found.Kind == EventKind.Ended) { sentence = found.Text(); ended = true; }
        }
        client.EndTurn();
        client.Wait(200);
    }

    static void Until(Func<bool> condition)
    {
        for (int turns = 0; !condition(); turns++)
        {
            Check(turns < MaxTurns, "it happened in time");
            Turn();
        }
    }

    // A batch which had one message with options takes as many as it was created for, without more memory.
    static void BatchWithoutGarbage()
    {
        MessageBatch batch = new MessageBatch(messages: 64, bytes: 6400);
        batch.Add(chat, message, patient);
        batch.Clear();
        long bytes = GC.GetAllocatedBytesForCurrentThread();
        for (int i = 0; i < 64; i++) batch.Add(chat, message, patient);
        bytes = GC.GetAllocatedBytesForCurrentThread() - bytes;
        Check(batch.Count == 64 && bytes == 0, "no garbage in a full batch");
    }

    // Sends all messages and waits for their echoes, without a delegate or another object.
    static void Echo(int count)
    {
        int wanted = echoes + count, sent = 0;
        for (int turns = 0; echoes < wanted; turns++)
        {
            Check(turns < MaxTurns, "the echoes arrived in time");
            // Few echoes are on their way, so that the queue of the server takes each.
            for (int i = 0; i < PerTurn && sent < count && sent - (echoes - wanted + count) < PerTurn; i++)
            {
                Status status = client.SendMessage(chat, message);
                if (status == Status.Backlogged) break;
                Check(status == Status.Done, "a message");
                sent++;
            }
            Turn();
        }
    }

    // An event that outlives its object keeps its values, and has no bytes that were freed.
    static void EventAfterDispose(byte[] key)
    {
        NetEvent found = default(NetEvent);
        Check(found.Kind == 0 && found.Bytes.Length == 0 && found.Text() == "", "an event of no object is empty");
        using (Traffic traffic = new Traffic(TrafficKind.Packets))
        using (Server host = new Server(new ServerConfig
        {
            ProtocolId = ProtocolId, Bind = "127.0.0.1:0", Keys = key, Traffic = traffic, AcceptOldTokens = true,
        }))
        {
            Client guest = new Client(traffic);
            guest.Connect(Tokens.Issue(ProtocolId, 6, host.Address(), key));
            ushort sequence;
            for (int turns = 0; found.Kind != EventKind.Packet; turns++)
            {
                Check(turns < MaxTurns, "a packet arrived in time");
                host.BeginTurn();
                while (host.TryNext(out found))
                    if (found.Kind == EventKind.Connected) host.SendPacket(found.Client, message, out sequence);
                host.EndTurn();
                guest.BeginTurn();
                while (guest.TryNext(out found) && found.Kind != EventKind.Packet) { }
                if (found.Kind == EventKind.Packet) Check(found.Bytes.Length == message.Length, "its bytes");
                guest.EndTurn();
                guest.Wait(200);
            }
            guest.Dispose();
            Check(found.Kind == EventKind.Packet && found.Bytes.Length == 0, "an event after Dispose");
        }
    }

    static int Collections() { return GC.CollectionCount(0) + GC.CollectionCount(1) + GC.CollectionCount(2); }

    static void Main()
    {
        Check(Log.SetLevel(LogLevel.Info) == Status.Done, "the log");
        Traffic traffic = new Traffic(TrafficKind.Channels, 3);
        traffic.Add(ChannelKind.Sequenced, "state", newestOnly: true);
        chat = traffic.Add(ChannelKind.ReliableOrdered, "chat");
        maps = traffic.Add(ChannelKind.Transfers, "maps");
        byte[] key = Tokens.GenerateKey();
        server = new Server(new ServerConfig
        {
            ProtocolId = ProtocolId, Bind = "127.0.0.1:0", Keys = key, Traffic = traffic, AcceptOldTokens = true,
        });
        client = new Client(traffic);
        traffic.Dispose();
        byte[] token = Tokens.Issue(ProtocolId, 5, server.Address(), key, "Ann");
        Check(client.Connect(token) == Status.Done && client.Connect(token) == Status.Busy, "connects once");
        Until(() => client.State == ClientState.Connected && handle != 0);
        Check(Log.NextLine().StartsWith("INFO ") && Log.SetLevel(LogLevel.Off) == Status.Done, "a line of the server");
        Check(server.SetUplink(12500000) == Status.Done, "a limit of the uplink");

        Check(client.SendMessage(chat, message, new SendOptions { Receipt = 7 }) == Status.Done, "a receipt");
        Until(() => receipts == 1 && echoes == 1);
        using (Transfer map = new Transfer(new byte[100000]))
        {
            uint id;
            Check(server.SendTransfer(handle, maps, map, 1, out id) == Status.Done, "a transfer");
        }
        Until(() => transfers == 100000);
        // The first round compiles the methods and fills all buffers.
        Echo(1000);
        BatchWithoutGarbage();
        GC.Collect();
        int before = Collections();
        // Threads of the runtime allocate when they like, for example its compiler, so only this thread counts.
        long bytes = GC.GetAllocatedBytesForCurrentThread();
        Check(bytes > 0, "the runtime counts what this thread allocates");
        Echo(Messages);
        bytes = GC.GetAllocatedBytesForCurrentThread() - bytes;
        Check(Collections() == before, "no collection");
        Console.WriteLine("garbage: {0} bytes, {1} collections", bytes, Collections() - before);
        Check(bytes == 0, "no garbage");

        Check(server.Kick(handle, "no rockets", 300) == Status.Done, "a kick");
        Until(() => ended && left);
        Check(sentence == "no rockets" && client.CloseReason == "no rockets", "the reason");
        CloseKind kind;
        Side by;
        uint code;
        Check(client.TryGetCloseReason(out kind, out by, out code), "why it ended");
        Check(kind == CloseKind.Kicked && by == Side.Remote && code == 300, "the kind, the side and the code");
        client.Dispose();
        server.Dispose();
        EventAfterDispose(key);
        Effects.Run();
        Console.WriteLine("ok");
    }
}

// What an event has said, for checks after its bytes are gone.
sealed class Seen
{
    internal readonly EventKind Kind;
    internal readonly int Channel, Reason;
    internal readonly Side By;
    internal readonly ulong Client, Number, Label, Size;
    internal readonly byte[] Bytes;
    internal readonly string Text;

    internal Seen(NetEvent found)
    {
        Kind = found.Kind;
        Channel = found.Channel;
        Reason = found.Reason;
        By = found.By;
        Client = found.Client;
        Number = found.Number;
        Label = found.Label;
        Size = found.Size;
        Bytes = found.Bytes.ToArray();
        Text = found.Text();
    }

    public override string ToString()
    {
        return string.Format("{0} channel={1} reason={2} by={3} number={4} label={5} size={6} bytes={7} {8}", Kind,
            Channel, Reason, By, Number, Label, Size, Bytes.Length, Bytes.Length < 99 ? Text : "");
    }
}

// A client with the events that it has taken.
sealed class Player
{
    internal Client Client;
    internal ulong Handle;
    internal readonly List<Seen> Events = new List<Seen>();
}

// A server and its clients on loopback, which keep their events.
sealed class World : IDisposable
{
    internal const ulong ProtocolId = 7;
    const int MaxTurns = 20000;

    internal readonly byte[] Key;
    internal readonly Traffic Traffic;
    internal readonly Server Server;
    internal readonly List<Seen> Events = new List<Seen>();
    internal readonly List<Player> Players = new List<Player>();

    internal World(Traffic traffic, Action<ServerConfig> change = null)
    {
        Traffic = traffic;
        ServerConfig config = new ServerConfig
        {
            ProtocolId = ProtocolId, Bind = "127.0.0.1:0", Keys = Tokens.GenerateKey(), Traffic = traffic,
            AcceptOldTokens = true,
        };
        if (change != null) change(config);
        Key = config.Keys;
        Server = new Server(config);
    }

    public void Dispose()
    {
        foreach (Player player in Players) player.Client.Dispose();
        Server.Dispose();
        Traffic.Dispose();
    }

    internal byte[] Token(ulong clientId) { return Tokens.Issue(ProtocolId, clientId, Server.Address(), Key, "Ann"); }

    internal Player Begin(byte[] token, Traffic traffic = null)
    {
        Player player = new Player { Client = new Client(traffic ?? Traffic) };
        Players.Add(player);
        EveryMethod.Check(player.Client.Connect(token) == Status.Done, "a connection begins");
        return player;
    }

    internal Player Join(ulong clientId) { return Join(Token(clientId), clientId); }
    internal Player Join(byte[] token, ulong clientId)
    {
        Player player = Begin(token);
        Until(() => player.Client.State == ClientState.Connected && Server.TryFind(clientId, out player.Handle));
        Until(() => Has(EventKind.Connected, found => found.Client == player.Handle));
        return player;
    }

    internal void TurnServer()
    {
        NetEvent found;
        Server.BeginTurn();
        while (Server.TryNext(out found)) Events.Add(new Seen(found));
        Server.EndTurn();
    }

    internal void Turn()
    {
        NetEvent found;
        TurnServer();
        foreach (Player player in Players)
        {
            player.Client.BeginTurn();
            while (player.Client.TryNext(out found)) player.Events.Add(new Seen(found));
            player.Client.EndTurn();
        }
        if (Players.Count > 0) Players[0].Client.Wait(200);
    }

    internal void Until(Func<bool> condition)
    {
        for (int turns = 0; !condition(); turns++)
        {
            if (turns == MaxTurns) Fail();
            Turn();
        }
    }

    void Fail()
    {
        foreach (Seen found in Events) Console.WriteLine("server: {0}", found);
        foreach (Player player in Players)
            foreach (Seen found in player.Events) Console.WriteLine("client: {0}", found);
        EveryMethod.Check(false, "it happened in time");
    }

    internal bool Has(EventKind kind, Predicate<Seen> wanted) { return Find(Events, kind, wanted) != null; }

    internal Seen AtServer(EventKind kind) { return Wait(Events, kind); }
    internal Seen AtClient(Player player, EventKind kind) { return Wait(player.Events, kind); }

    // Waits for the first event of a kind, and takes it from the list.
    Seen Wait(List<Seen> events, EventKind kind)
    {
        Until(() => Find(events, kind, found => true) != null);
        Seen first = Find(events, kind, found => true);
        events.Remove(first);
        return first;
    }

    internal static Seen Find(List<Seen> events, EventKind kind, Predicate<Seen> wanted)
    {
        return events.Find(found => found.Kind == kind && wanted(found));
    }

    // Returns the texts of the messages that a list has, separated by spaces.
    internal static string Texts(List<Seen> events)
    {
        List<string> texts = new List<string>();
        foreach (Seen found in events)
            if (found.Kind == EventKind.Message) texts.Add(found.Text);
        return string.Join(" ", texts);
    }

    // Returns the tags and statuses of the receipts that a list has, in the order of the tags.
    internal static string Receipts(List<Seen> events)
    {
        List<string> receipts = new List<string>();
        foreach (Seen found in events)
            if (found.Kind == EventKind.Receipt) receipts.Add(found.Number + ":" + (DeliveryStatus)found.Reason);
        receipts.Sort(string.CompareOrdinal);
        return string.Join(" ", receipts);
    }

    // Returns how many datagrams the server has dropped for a reason.
    internal ulong Dropped(string reason)
    {
        ulong count;
        string name;
        for (uint i = 0; Server.Discards(i, out count, out name) == Status.Done; i++)
            if (name == reason) return count;
        throw new Exception("no such reason: " + reason);
    }
}

// Each method does what its name says.
static class Effects
{
    static byte state, chat, maps;

    static void Check(bool condition, string what) { EveryMethod.Check(condition, what); }
    static byte[] Bytes(string text) { return Encoding.UTF8.GetBytes(text); }

    static Traffic Channels(uint version = 3)
    {
        Traffic traffic = new Traffic(TrafficKind.Channels, version);
        state = traffic.Add(ChannelKind.Sequenced, "state", newestOnly: true);
        chat = traffic.Add(ChannelKind.ReliableOrdered, "chat");
        maps = traffic.Add(ChannelKind.Transfers, "maps");
        traffic[maps].Admission = Admission.Ask;
        return traffic;
    }

    static bool Throws<Error>(Action action) where Error : Exception
    {
        try { action(); }
        catch (Error) { return true; }
        return false;
    }

    // Returns the status of the error of a constructor.
    static Status StatusOf(Action constructor)
    {
        try { constructor(); }
        catch (SlipgateException error) { return error.Status; }
        return Status.Done;
    }

    internal static void Run()
    {
        Library();
        Payloads();
        Packets();
        Messages();
        Batches();
        Flushes();
        Transfers();
        Questions();
        Rooms();
        Ends();
        NewClients();
        Keys();
        Settings();
        Takeover();
        History();
        Wakers();
        UplinkLog();
        FreedHandles();
    }

    static void Library()
    {
        Check(NativeLibrary.Version.Split('.').Length == 3, "a version");
        byte[] key = Tokens.GenerateKey(), other = Tokens.GenerateKey();
        Check(key.Length == 32 && Convert.ToBase64String(key) != Convert.ToBase64String(other), "keys differ");
        Check(Throws<ArgumentException>(() => Tokens.Issue(7, 5, "127.0.0.1:1", new byte[31])), "a key has 32 bytes");
        Check(StatusOf(() => Tokens.Issue(7, 5, "nowhere", key)) == Status.Argument, "an address");
        byte[] token = Tokens.Issue(World.ProtocolId, 5, "127.0.0.1:1", key);
        Check(token.Length == 2048, "a token");
        Client client = new Client();
        Check(client.Connect(new byte[7]) == Status.Token, "a token has 2048 bytes");
        Check(client.Connect(token) == Status.Done, "a connection begins");
        Check(client.Connect(token) == Status.Busy && client.Disconnect() == Status.Done, "connects once");
        client.Dispose();
        Check(Throws<ObjectDisposedException>(() => client.Send(key)), "no sends after Dispose");
        Check(Throws<ObjectDisposedException>(() => client.BeginTurn()), "no turns after Dispose");
        Check(Client.StateName(ClientState.Connected) == "connected", "the name of a state");
        Check(Client.StateName(ClientState.Disconnected) == "disconnected", "the name of another state");
        Traffic traffic = Channels();
        Check(StatusOf(() => traffic.Add(ChannelKind.Transfers + 1, "none")) == Status.Argument, "a kind of channels");
        Traffic many = new Traffic();
        for (int i = 0; i < 256; i++) many.Add(ChannelKind.Unreliable, null);
        Check(Throws<InvalidOperationException>(() => many.Add(ChannelKind.Unreliable, null)), "256 ids of channels");
        Check(StatusOf(() => new Client(many).Dispose()) == Status.Config, "62 channels");
        many.Dispose();
        Traffic newest = new Traffic();
        newest.Add(ChannelKind.ReliableOrdered, "chat", newestOnly: true);
        Check(StatusOf(() => new Client(newest).Dispose()) == Status.Config, "newestOnly loses messages");
        newest.Dispose();
        traffic.MaxPayloadBytes = 100;
        Check(StatusOf(() => new Client(traffic).Dispose()) == Status.Config, "MaxPayloadBytes is at least 508");
        traffic.Dispose();
        Check(Throws<ObjectDisposedException>(() => traffic.Add(ChannelKind.Sequenced, "late")), "it is freed");
        Check(Throws<ObjectDisposedException>(() => new Client(traffic).Dispose()), "freed channels are refused");
    }

    static byte[] Pattern(int length)
    {
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) bytes[i] = (byte)(i * 31 >> 3);
        return bytes;
    }

    static bool IsPattern(byte[] bytes, int length)
    {
        return Convert.ToBase64String(bytes) == Convert.ToBase64String(Pattern(length));
    }

    static void Payloads()
    {
        using (World world = new World(new Traffic(TrafficKind.Payloads)))
        {
            Player player = world.Join(5);
            Client client = player.Client;
            Server server = world.Server;
            Check(client.Send(null) == Status.Empty && client.Send(new byte[1201]) == Status.TooLarge, "its bounds");
            Check(client.Send(Pattern(1200)) == Status.Done, "a payload");
            Seen found = world.AtServer(EventKind.Payload);
            Check(IsPattern(found.Bytes, 1200) && found.Client == player.Handle, "all its bytes and its client");
            Check(server.Send(player.Handle, null) == Status.Empty, "an empty payload");
            Check(server.Send(player.Handle + 1, Pattern(1)) == Status.Gone, "no such client");
            Check(server.Send(player.Handle, Pattern(900)) == Status.Done, "a payload of the server");
            Check(IsPattern(world.AtClient(player, EventKind.Payload).Bytes, 900), "all its bytes");
            ushort sequence;
            PathStats path;
            Check(client.SendPacket(Pattern(1), out sequence) == Status.WrongTraffic, "no packets");
            Check(server.SendPacket(player.Handle, Pattern(1), out sequence) == Status.WrongTraffic, "nor there");
            Check(!client.TryGetPath(out path) && !server.TryGetPath(player.Handle, out path), "payloads have no path");
        }
    }

    static void Packets()
    {
        using (World world = new World(new Traffic(TrafficKind.Packets)))
        {
            Player player = world.Join(5);
            Client client = player.Client;
            Server server = world.Server;
            ushort first = 0, second = 0;
            // After a large packet the next one waits until the path can carry more.
            world.Until(() => client.SendPacket(Pattern(16000), out first) == Status.Done);
            world.Until(() => client.SendPacket(Pattern(10), out second) == Status.Done);
            Seen found = world.AtServer(EventKind.Packet), next = world.AtServer(EventKind.Packet);
            Check(IsPattern(found.Bytes, 16000) && found.Number == first, "the bytes of the packet");
            Check(IsPattern(next.Bytes, 10) && next.Number == second && second != first, "those of the next one");
            world.Until(() => World.Find(player.Events, EventKind.PacketAcked, acked => acked.Number == first) != null);
            world.Until(() => server.SendPacket(player.Handle, Pattern(20), out first) == Status.Done);
            world.Until(() => server.SendPacket(player.Handle, Pattern(30), out second) == Status.Done);
            found = world.AtClient(player, EventKind.Packet);
            next = world.AtClient(player, EventKind.Packet);
            Check(IsPattern(found.Bytes, 20) && found.Number == first, "the bytes of a packet of the server");
            Check(IsPattern(next.Bytes, 30) && next.Number == second && second != first, "the bytes of the next one");
            world.Until(() => world.Has(EventKind.PacketAcked, acked => acked.Number == first));
        }
    }

    static readonly SendOptions late = new SendOptions { DeadlineUs = 1, Receipt = 1 };
    static readonly SendOptions patient = new SendOptions { DeadlineUs = 600000000, Receipt = 2 };

    static SendOptions Keyed(ulong key, ulong receipt) { return new SendOptions { Key = key, Receipt = receipt }; }

    const string AllReceipts = "1:Expired 2:Arrived 3:Superseded 4:Arrived 5:Arrived";

    static void Messages()
    {
        using (World world = new World(Channels()))
        {
            Player player = world.Join(5);
            Client client = player.Client;
            Check(client.SendMessage(99, Bytes("x")) == Status.NoChannel, "no such channel");
            Check(client.SendMessage(maps, Bytes("x")) == Status.WrongKind, "a channel of transfers");
            Check(client.SendMessage(chat, Bytes("a"), late) == Status.Done, "a message with a deadline");
            Check(client.SendMessage(chat, Bytes("b"), patient) == Status.Done, "one with much time");
            Check(client.SendMessage(chat, Bytes("c"), Keyed(8, 3)) == Status.Done, "one with a key");
            Check(client.SendMessage(chat, Bytes("d"), Keyed(9, 4)) == Status.Done, "one with another key");
            Check(client.SendMessage(chat, Bytes("e"), Keyed(8, 5)) == Status.Done, "one that replaces an older one");
            Check(client.SendMessage(chat, Bytes("f")) == Status.Done, "one without options");
            // The deadline passes before the turn ends.
            Thread.Sleep(5);
            world.Until(() => World.Receipts(player.Events) == AllReceipts);
            world.Until(() => World.Texts(world.Events) == "b e d f");
            Check(client.SendMessage(state, Bytes("s")) == Status.Done, "a message on another channel");
            Seen found = world.AtServer(EventKind.Message);
            Check(found.Channel == chat && found.Client == player.Handle, "its channel and client");
            world.Until(() => World.Texts(world.Events) == "e d f s");
            Check(world.Events[world.Events.Count - 1].Channel == state, "the other channel");

            Server server = world.Server;
            ulong handle = player.Handle;
            Check(server.SendMessage(handle, chat, Bytes("a"), late) == Status.Done, "a deadline at the server");
            Check(server.SendMessage(handle, chat, Bytes("b"), patient) == Status.Done, "with much time");
            Check(server.SendMessage(handle, chat, Bytes("c"), Keyed(8, 3)) == Status.Done, "with a key");
            Check(server.SendMessage(handle, chat, Bytes("d"), Keyed(9, 4)) == Status.Done, "with another key");
            Check(server.SendMessage(handle, chat, Bytes("e"), Keyed(8, 5)) == Status.Done, "with the first key");
            Check(server.SendMessage(handle, chat, Bytes("f")) == Status.Done, "without options");
            Check(server.SendMessage(handle + 1, chat, Bytes("f")) == Status.Gone, "no such client");
            Thread.Sleep(5);
            world.Until(() => World.Receipts(world.Events) == AllReceipts);
            world.Until(() => World.Texts(player.Events) == "b e d f");
            Broadcasts(world, player);
        }
    }

    static void Broadcasts(World world, Player first)
    {
        Player second = world.Join(6);
        first.Events.Clear();
        Check(world.Server.Broadcast(chat, Bytes("all")) == Status.Done, "a message to all");
        Check(world.Server.Broadcast(chat, Bytes("others"), first.Handle) == Status.Done, "to all except one");
        Check(world.Server.Broadcast(99, Bytes("x")) == Status.NoChannel, "a broadcast without a channel");
        Check(world.Server.SendMessage(first.Handle, chat, Bytes("end")) == Status.Done, "a message behind them");
        world.Until(() => World.Texts(first.Events) == "all end" && World.Texts(second.Events) == "all others");
    }

    // More messages than the first memory of a batch holds, of several lengths, with and without options.
    static void Batches()
    {
        const int Count = 200;
        using (World world = new World(Channels()))
        {
            Player player = world.Join(5);
            MessageBatch batch = new MessageBatch(messages: 0, bytes: 0);
            Check(batch.Count == 0 && player.Client.SendMessages(batch) == Status.Done, "an empty batch");
            for (int i = 0; i < Count; i++)
                if (i % 3 == 0) batch.Add(chat, Filled(i), new SendOptions { Receipt = (ulong)i });
                else batch.Add(chat, Filled(i));
            batch.Add(99, Filled(1));
            batch.Add(chat, Filled(3 * Count));
            Check(batch.Count == Count + 2, "the number of messages");
            Check(player.Client.SendMessages(batch) == Status.NoChannel, "the first refused one");
            for (int i = 0; i < batch.Count; i++)
                Check(batch.StatusOf(i) == (i == Count ? Status.NoChannel : Status.Done), "its own status");
            Check(Throws<ArgumentOutOfRangeException>(() => batch.StatusOf(Count + 2)), "an index behind the last one");
            Check(player.Client.SendMessages(batch) == Status.Done && batch.Count == 0, "a batch leaves once");
            for (int i = 0; i <= Count; i++)
            {
                byte[] content = world.AtServer(EventKind.Message).Bytes;
                Check(Convert.ToBase64String(content) == Convert.ToBase64String(Filled(i < Count ? i : 3 * Count)), "its content");
            }
            for (ulong tag = 0; tag < Count; tag += 3)
            {
                Seen receipt = world.AtClient(player, EventKind.Receipt);
                Check(receipt.Number == tag && receipt.Reason == (int)DeliveryStatus.Arrived, "each receipt in order");
            }
            ReusedBatch(world, player, batch);
            BatchOfServer(world, player, batch);
        }
    }

    static byte[] Filled(int length)
    {
        byte[] content = new byte[length];
        for (int i = 0; i < length; i++) content[i] = (byte)length;
        return content;
    }

    // Nothing of an earlier batch is left in the memory of a later one.
    static void ReusedBatch(World world, Player player, MessageBatch batch)
    {
        batch.Add(99, Bytes("x"));
        Check(player.Client.SendMessages(batch) == Status.NoChannel, "a refused message");
        batch.Add(chat, Bytes("a"));
        Check(batch.Count == 1 && batch.StatusOf(0) == Status.None, "a message that was not sent");
        batch.Add(chat, Bytes("b"), new SendOptions { Receipt = 1001 });
        batch.Add(chat, Bytes("c"), Keyed(8, 1002));
        batch.Add(chat, Bytes("d"));
        batch.Add(chat, Bytes("e"), Keyed(8, 1003));
        Check(player.Client.SendMessages(batch) == Status.Done, "another batch");
        world.Until(() => World.Texts(world.Events) == "a b e d");
        world.Until(() => World.Receipts(player.Events) == "1001:Arrived 1002:Superseded 1003:Arrived");
        batch.Add(chat, Bytes("x"), new SendOptions { Receipt = 1004 });
        batch.Clear();
        Check(batch.Count == 0 && player.Client.SendMessages(batch) == Status.Done, "a batch without its messages");
    }

    static void BatchOfServer(World world, Player player, MessageBatch batch)
    {
        Player second = world.Join(6);
        batch.Add(player.Handle, chat, Bytes("one"), new SendOptions { Receipt = 1 });
        batch.Add(player.Handle + 7, chat, Bytes("x"));
        batch.Add(second.Handle, chat, Bytes("two"), new SendOptions { Receipt = 2 });
        batch.Add(player.Handle, chat, Bytes("three"));
        Check(batch.Count == 4 && world.Server.SendMessages(batch) == Status.Gone, "a client that is gone");
        Check(batch.StatusOf(0) == Status.Done && batch.StatusOf(1) == Status.Gone, "the statuses of the server");
        Check(batch.StatusOf(2) == Status.Done && batch.StatusOf(3) == Status.Done, "those behind it");
        world.Until(() => World.Texts(player.Events) == "one three" && World.Texts(second.Events) == "two");
        world.Until(() => World.Receipts(world.Events) == "1:Arrived 2:Arrived");
    }

    // A message leaves with Flush, without the end of a turn.
    static void Flushes()
    {
        using (World world = new World(Channels()))
        {
            Player player = world.Join(5);
            NetEvent found;
            bool arrived = false;
            world.Turn();
            player.Client.BeginTurn();
            Check(player.Client.SendMessage(chat, Bytes("flushed")) == Status.Done, "a message");
            Check(player.Client.Flush() == Status.Done, "a flush");
            for (int turns = 0; World.Texts(world.Events) != "flushed"; turns++)
            {
                Check(turns < 20000, "a flushed message of the client arrives");
                world.TurnServer();
                world.Server.Wait(1000);
            }
            player.Client.EndTurn();
            world.Turn();
            world.Server.BeginTurn();
            Check(world.Server.SendMessage(player.Handle, chat, Bytes("flushed")) == Status.Done, "a message");
            Check(world.Server.Flush() == Status.Done, "a flush of the server");
            for (int turns = 0; !arrived; turns++)
            {
                Check(turns < 20000, "a flushed message of the server arrives");
                player.Client.BeginTurn();
                while (player.Client.TryNext(out found)) arrived |= found.Kind == EventKind.Message;
                player.Client.EndTurn();
                player.Client.Wait(1000);
            }
            world.Server.EndTurn();
        }
    }

    static void Transfers()
    {
        using (World world = new World(Channels()))
        using (Transfer map = new Transfer(Pattern(50000)))
        {
            Player player = world.Join(5);
            Upload(world, player, map);
            Download(world, player, map);
        }
    }

    static Seen Offer(Seen offered, uint id, ulong label)
    {
        Check(offered.Channel == maps && offered.Label == label && offered.Size == 50000, "an offer");
        Check(offered.Number == id, "its id");
        return offered;
    }

    static void Upload(World world, Player player, Transfer map)
    {
        Client client = player.Client;
        Server server = world.Server;
        uint id;
        Check(client.SendTransfer(chat, map, 1, out id) == Status.WrongKind, "a channel of messages");
        Check(client.SendTransfer(maps, map, 41, out id) == Status.Done, "a transfer to the server");
        Offer(world.AtServer(EventKind.TransferOffered), id, 41);
        Check(server.AcceptTransfer(player.Handle, maps, id) == Status.Done, "the server accepts it");
        Seen found = world.AtServer(EventKind.TransferReceived);
        Check(found.Number == id && found.Label == 41 && IsPattern(found.Bytes, 50000), "the transfer at the server");
        Check(world.AtClient(player, EventKind.TransferDelivered).Number == id, "its delivery");
        Check(server.AcceptTransfer(player.Handle, maps, id) == Status.Gone, "it is over");

        Check(client.SendTransfer(maps, map, 42, out id) == Status.Done, "a transfer that is refused");
        Offer(world.AtServer(EventKind.TransferOffered), id, 42);
        Check(server.RefuseTransfer(player.Handle, maps, id) == Status.Done, "the server refuses it");
        found = world.AtClient(player, EventKind.TransferRefused);
        Check(found.Number == id && found.Reason == (int)TransferReason.Declined, "the client learns of it");

        Check(client.SendTransfer(maps, map, 43, out id) == Status.Done, "a transfer that is cancelled");
        Offer(world.AtServer(EventKind.TransferOffered), id, 43);
        Check(client.CancelTransfer(maps, id) == Status.Done, "the client cancels it");
        Check(client.CancelTransfer(maps, id + 99) == Status.Gone, "no such transfer");
        found = world.AtServer(EventKind.TransferBroken);
        Check(found.Number == id && found.Label == 43, "the server learns of it");
        Check(found.Reason == (int)TransferReason.Cancelled && found.By == Side.Remote, "and why");
    }

    static void Download(World world, Player player, Transfer map)
    {
        Client client = player.Client;
        Server server = world.Server;
        uint id;
        Check(server.SendTransfer(player.Handle, maps, map, 44, out id) == Status.Done, "a transfer to the client");
        Offer(world.AtClient(player, EventKind.TransferOffered), id, 44);
        Check(client.AcceptTransfer(maps, id) == Status.Done, "the client accepts it");
        Seen found = world.AtClient(player, EventKind.TransferReceived);
        Check(found.Number == id && found.Label == 44 && IsPattern(found.Bytes, 50000), "the transfer at the client");
        Check(world.AtServer(EventKind.TransferDelivered).Number == id, "its delivery");
        Check(client.AcceptTransfer(maps, id) == Status.Gone, "it is over");

        Check(server.SendTransfer(player.Handle, maps, map, 45, out id) == Status.Done, "a transfer that is refused");
        Offer(world.AtClient(player, EventKind.TransferOffered), id, 45);
        Check(client.RefuseTransfer(maps, id) == Status.Done, "the client refuses it");
        found = world.AtServer(EventKind.TransferRefused);
        Check(found.Number == id && found.Reason == (int)TransferReason.Declined, "the server learns of it");

        Check(server.SendTransfer(player.Handle, maps, map, 46, out id) == Status.Done, "a transfer that is cancelled");
        Offer(world.AtClient(player, EventKind.TransferOffered), id, 46);
        Check(server.CancelTransfer(player.Handle, maps, id) == Status.Done, "the server cancels it");
        Check(server.CancelTransfer(player.Handle, maps, id + 99) == Status.Gone, "no such transfer");
        found = world.AtClient(player, EventKind.TransferBroken);
        Check(found.Number == id && found.Label == 46, "the client learns of it");
        Check(found.Reason == (int)TransferReason.Cancelled && found.By == Side.Remote, "and why");
    }

    static void Questions()
    {
        using (World world = new World(Channels(), config => config.Slots = 11))
        {
            Player first = world.Join(5), second = world.Join(6);
            Server server = world.Server;
            Client client = first.Client;
            PathStats path;
            Budget budget;
            ClientInfo info;
            ulong found, count;
            string name;
            Seen connected = world.AtClient(first, EventKind.Connected);
            Check(connected.Number == 0 && connected.Label == 11, "the index of the client and the number of slots");
            Check(client.SendMessage(chat, Bytes("a")) == Status.Done, "a message");
            Check(server.SendMessage(first.Handle, chat, Bytes("b")) == Status.Done, "a message of the server");
            world.AtServer(EventKind.Message);
            world.AtClient(first, EventKind.Message);
            world.Until(() => client.TryGetPath(out path) && path.RoundTripMs > 0 && path.BytesPerSecond > 0);
            world.Until(() => server.TryGetPath(first.Handle, out path) && path.RoundTripMs > 0);
            Check(server.TryGetPath(first.Handle, out path) && path.BytesPerSecond > 0 && path.Loss <= 1, "its path");
            Check(!server.TryGetPath(second.Handle + 9, out path), "no such path");
            world.Until(() => client.TryGetBudget(out budget) && budget.Bytes > 0);
            Check(client.TryGetBudget(out budget) && budget.PacketsPerSecond > 0, "packets that suit the path");
            Check(budget.PayloadBytes > 0 && budget.MaxMessageBytes > 0, "sizes that suit the path");
            world.Until(() => server.TryGetBudget(first.Handle, out budget) && budget.Bytes > 0);
            Check(server.TryGetBudget(first.Handle, out budget) && budget.PayloadBytes > 0, "the budget of a client");
            Check(!server.TryGetBudget(second.Handle + 9, out budget), "no such budget");
            Check(server.TryGetInfo(first.Handle, out info) && info.ClientId == 5 && info.ClientIndex == 0, "its ids");
            Check(info.BytesSent > 0 && info.BytesReceived > 0, "its counters");
            Check(info.AddressFamily == 4 && info.Port != 0, "its port");
            unsafe
            {
                Check(info.Address[0] == 127 && info.Address[3] == 1, "its address");
                Check(info.UserData[0] == 'A' && info.UserData[2] == 'n' && info.UserData[3] == 0, "its user data");
            }
            Check(!server.TryGetInfo(second.Handle + 9, out info), "nothing of no client");
            Check(server.TryFind(6, out found) && found == second.Handle, "its handle");
            Check(!server.TryFind(7, out found), "no such client");
            ulong[] clients = new ulong[4];
            Check(server.Connected == 2 && server.Clients(clients) == 2, "two clients");
            Check(clients[0] == first.Handle && clients[1] == second.Handle && clients[2] == 0, "in their order");
            Check(server.Clients(new Span<ulong>(clients, 0, 1)) == 1, "as many as there is room for");
            Check(client.Discards(0, out count, out name) == Status.Done && name == "empty" && count == 0, "a counter");
            Check(client.Discards(1000, out count, out name) == Status.None && name == null, "no counter");
            Check(server.Discards(1000, out count, out name) == Status.None && name == null, "nor there");
            Check(server.Address().StartsWith("127.0.0.1:") && server.Address(9) == null, "the address");
        }
    }

    // The settings of a channel count at both ends.
    static void Rooms()
    {
        Traffic traffic = Channels();
        traffic[chat].QueueMessages = 3;
        traffic[chat].MaxMessageBytes = 100;
        using (World world = new World(traffic))
        {
            Player player = world.Join(5);
            Remaining before = new Remaining(), after;
            world.Until(() => player.Client.TryGetRemaining(chat, out before) && before.Messages == 3);
            Check(before.Bytes > 0 && before.Receipts > 0, "room for bytes and receipts");
            Check(player.Client.SendMessage(chat, new byte[101]) == Status.TooLarge, "a message that is too large");
            for (int i = 0; i < 3; i++) Check(player.Client.SendMessage(chat, Bytes("a")) == Status.Done, "a message");
            Check(player.Client.TryGetRemaining(chat, out after) && after.Messages == 0, "no room");
            Check(after.Bytes < before.Bytes, "less room for bytes");
            Check(player.Client.SendMessage(chat, Bytes("b")) == Status.Backlogged, "a full queue");
            Server server = world.Server;
            Check(server.TryGetRemaining(player.Handle, chat, out before) && before.Messages == 3, "its room");
            Check(server.SendMessage(player.Handle, chat, Bytes("c")) == Status.Done, "a message of the server");
            Check(server.TryGetRemaining(player.Handle, chat, out after) && after.Messages == 2, "less room");
            Check(!server.TryGetRemaining(player.Handle + 9, chat, out after), "no room of no client");
        }
    }

    static void Closed(Player player, CloseKind kind, Side by, uint code, string text)
    {
        CloseKind foundKind;
        Side foundBy;
        uint foundCode;
        Check(player.Client.TryGetCloseReason(out foundKind, out foundBy, out foundCode), "why it ended");
        string found = foundKind + " " + foundBy + " " + foundCode;
        Check(found == kind + " " + by + " " + code, "the kind, the side and the code: " + found);
        Check(text == null || player.Client.CloseReason == text, "the sentence: " + player.Client.CloseReason);
    }

    static void Ended(Seen ended, CloseKind kind, Side by, uint code, string text)
    {
        Check(ended.Reason == (int)kind && ended.By == by && ended.Label == code, "an end: " + ended);
        Check(text == null || ended.Text == text, "its text: " + ended);
    }

    // The code of a server that stops.
    const uint StopCode = 4;

    static void Ends()
    {
        using (World world = new World(Channels()))
        {
            CloseKind kind;
            Side by;
            uint code;
            byte[] token = world.Token(5);
            Player player = world.Join(token, 5);
            Check(player.Client.CloseReason == null, "no reason yet");
            Check(!player.Client.TryGetCloseReason(out kind, out by, out code) && code == Client.NoCode, "no code yet");
            Check(player.Client.Leave(300, "tschüß") == Status.Done, "a client leaves");
            Ended(world.AtServer(EventKind.Ended), CloseKind.Left, Side.Remote, 300, "tschüß");
            Ended(world.AtClient(player, EventKind.Ended), CloseKind.Left, Side.Local, 300, null);
            Closed(player, CloseKind.Left, Side.Local, 300, null);
            Check(player.Client.State == ClientState.Disconnected, "its state");
            Check(player.Client.Connect(token) == Status.TokenUsed, "a token is for one connection");

            player = world.Join(6);
            Check(player.Client.Disconnect() == Status.Done, "a client disconnects");
            Ended(world.AtServer(EventKind.Ended), CloseKind.Left, Side.Remote, Client.NoCode, "");
            Check(player.Client.State == ClientState.Disconnected, "its state");

            player = world.Join(7);
            Check(world.Server.Kick(player.Handle, "no röckets", 400) == Status.Done, "a kick");
            Ended(world.AtClient(player, EventKind.Ended), CloseKind.Kicked, Side.Remote, 400, "no röckets");
            Ended(world.AtServer(EventKind.Ended), CloseKind.Kicked, Side.Local, 400, null);
            Closed(player, CloseKind.Kicked, Side.Remote, 400, "no röckets");
            Check(world.Server.Kick(player.Handle, "again") == Status.Gone, "it is gone");

            player = world.Join(8);
            Check(world.Server.Kick(player.Handle, "no code") == Status.Done, "a kick without a code");
            Ended(world.AtClient(player, EventKind.Ended), CloseKind.Kicked, Side.Remote, 0, "no code");
            world.AtServer(EventKind.Ended);

            player = world.Join(9);
            Check(world.Server.Disconnect(player.Handle) == Status.Done, "the server disconnects a client");
            Seen ended = world.AtClient(player, EventKind.Ended);
            Ended(ended, CloseKind.DisconnectedByServer, Side.Remote, Client.NoCode, null);
            Check(world.Server.Disconnect(player.Handle) == Status.Gone, "it is gone, too");
            world.AtServer(EventKind.Ended);

            player = world.Join(10);
            Check(world.Server.Stop("until tomorrow, bÿe") == Status.Done, "the server stops");
            ended = world.AtClient(player, EventKind.Ended);
            Ended(ended, CloseKind.ServerStopped, Side.Remote, StopCode, "until tomorrow, bÿe");
            Closed(player, CloseKind.ServerStopped, Side.Remote, StopCode, "until tomorrow, bÿe");
        }
    }

    static void NewClients()
    {
        using (World world = new World(Channels()))
        {
            Player first = world.Join(5);
            Check(world.Server.AcceptNewClients(false) == Status.Done, "no new clients");
            Player second = world.Begin(world.Token(6));
            Seen ended = world.AtClient(second, EventKind.Ended);
            Check(ended.Reason == (int)CloseKind.Denied && second.Client.State == ClientState.Denied, "it is denied");
            Check(first.Client.State == ClientState.Connected, "the first one stays");
            Check(world.Server.AcceptNewClients(true) == Status.Done, "new clients");
            world.Join(7);
            Player other = world.Begin(world.Token(8), Channels(4));
            Check(world.AtClient(other, EventKind.Ended).Reason == (int)CloseKind.LayoutMismatch, "another version");
        }
    }

    static void Keys()
    {
        using (World world = new World(Channels()))
        {
            byte[] newest = Tokens.GenerateKey(), both = new byte[64];
            newest.CopyTo(both, 0);
            world.Key.CopyTo(both, 32);
            Check(world.Server.SetKeys(both) == Status.Done, "two keys");
            Check(world.Server.SetKeys(new byte[31]) == Status.Argument, "a key that was cut");
            world.Join(5);
            world.Join(Tokens.Issue(World.ProtocolId, 6, world.Server.Address(), newest), 6);
            Check(world.Server.SetKeys(newest) == Status.Done, "the newest key");
            world.Begin(world.Token(7));
            world.Until(() => world.Dropped("token_not_authentic") > 0);
        }
    }

    static void Settings()
    {
        using (World world = new World(Channels(), config => config.MaxTokenLifetimeSeconds = 10))
        {
            world.Begin(world.Token(5));
            world.Until(() => world.Dropped("token_lifetime_too_long") > 0);
        }
        byte[] old = null;
        Restarted(null, world => old = world.Token(5), world =>
        {
            world.Begin(old);
            world.Until(() => world.Dropped("before_start") > 0);
        });
        using (World world = new World(Channels(), config => config.Advertised = "127.0.0.1:1"))
        {
            world.Begin(world.Token(5));
            world.Until(() => world.Dropped("address_not_listed") > 0);
        }
        byte[] key = Tokens.GenerateKey();
        ServerConfig none = new ServerConfig { Bind = "127.0.0.1:0", Keys = key, Slots = 0 };
        Check(StatusOf(() => new Server(none).Dispose()) == Status.Config, "a server has slots");
        none.Slots = 1;
        Server server = new Server(none);
        server.Dispose();
        Check(Throws<ObjectDisposedException>(() => server.Send(1, key)), "no sends of a server after Dispose");
        try
        {
            new Server(new ServerConfig { Bind = "here" }).Dispose();
            Check(false, "a server needs keys");
        }
        catch (SlipgateException error)
        {
            Check(error.Status == Status.Argument && error.Message.Contains("keys"), "a text");
        }
    }

    // A newer token takes over a connection that was silent for TakeoverAfterMs, here between two keep-alives.
    static void Takeover()
    {
        using (World world = new World(Channels(), config => config.TakeoverAfterMs = 1))
        {
            Player first = world.Join(5);
            // The other token is newer by some milliseconds.
            Thread.Sleep(5);
            world.Begin(world.Token(5));
            Seen ended = world.AtServer(EventKind.Ended);
            Check(ended.Reason == (int)CloseKind.TakenOver && ended.Client == first.Handle, "a takeover: " + ended);
        }
    }

    // Starts a server a second time under its address, and then not for tokens from before its start.
    static void Restarted(string history, Action<World> first, Action<World> second)
    {
        for (int tries = 0; ; tries++)
        {
            byte[] key;
            string address;
            using (World world = new World(Channels(), config => config.HistoryFile = history))
            {
                first(world);
                key = world.Key;
                address = world.Server.Address();
            }
            // Tokens have a time in milliseconds.
            Thread.Sleep(5);
            try
            {
                using (World world = new World(Channels(), config =>
                {
                    config.HistoryFile = history;
                    config.AcceptOldTokens = false;
                    config.Bind = address;
                    config.Keys = key;
                })) second(world);
                return;
            }
            // Another program has taken the port.
            catch (SlipgateException error) { Check(error.Status == Status.Io && tries < 9, error.Message); }
        }
    }

    // A server with a history file knows which tokens were used before its start, and accepts the others.
    static void History()
    {
        string file = Path.Combine(Path.GetTempPath(), "slipgate." + Guid.NewGuid() + ".history");
        byte[] old = null;
        try
        {
            Restarted(file, world =>
            {
                // The file knows all tokens from the next full second on.
                Thread.Sleep(1100);
                old = world.Token(5);
            }, world => world.Join(old, 5));
            Check(File.Exists(file), "the history file");
        }
        finally
        {
            File.Delete(file);
            File.Delete(file + ".lock");
        }
    }

    static void Wakers()
    {
        using (World world = new World(Channels()))
        using (WakerHandle waker = world.Server.CreateWaker())
        {
            Stopwatch clock = Stopwatch.StartNew();
            Check(world.Server.Wait(20000) == Status.Done && clock.ElapsedMilliseconds >= 10, "it sleeps");
            // This wait would outlast the test.
            Check(!waker.IsInvalid && Server.Wake(waker) == Status.Done, "wakes");
            Check(world.Server.Wait(600000000) == Status.Done, "a wait that is over at once");
        }
    }

    // Returns whether the log has a line with this text; takes all lines.
    static bool HasLine(string text)
    {
        bool found = false;
        for (string line; (line = Log.NextLine()) != null;) found |= line.Contains(text);
        return found;
    }

    // A transfer of a server without a limit of its uplink is logged.
    static void UplinkLog()
    {
        const string Warning = "the uplink has no limit";
        foreach (bool limited in new[] { false, true })
            using (World world = new World(Channels()))
            using (Transfer map = new Transfer(Pattern(10)))
            {
                uint id;
                Check(Log.SetLevel(LogLevel.Info) == Status.Done, "the log with clients");
                world.Join(4);
                Check(HasLine("INFO "), "a line about a client");
                Check(Log.SetLevel(LogLevel.Warn) == Status.Done, "the log without them");
                Player player = world.Join(5);
                Check(!HasLine("INFO "), "no line about a client");
                if (limited) Check(world.Server.SetUplink(12500000) == Status.Done, "a limit of the uplink");
                Check(world.Server.SendTransfer(player.Handle, maps, map, 1, out id) == Status.Done, "a transfer");
                Check(HasLine(Warning) == !limited && Log.NextLine() == null, "a line about the uplink, or none");
                Check(Log.SetLevel(LogLevel.Off) == Status.Done, "no log");
            }
    }

    // Returns how many files and sockets this process has open; 0 where the system does not say it.
    static int OpenFiles()
    {
        const string Folder = "/proc/self/fd";
        return Directory.Exists(Folder) ? Directory.GetFileSystemEntries(Folder).Length : 0;
    }

    // Dispose frees sockets and contents.
    static void FreedHandles()
    {
        const int Count = 20, TransferBytes = 16 << 20;
        byte[] key = Tokens.GenerateKey();
        ServerConfig config = new ServerConfig { Bind = "127.0.0.1:0", Keys = key };
        int before = OpenFiles();
        for (int i = 0; i < Count; i++)
        {
            using (Client client = new Client())
                Check(client.Connect(Tokens.Issue(0, 5, "127.0.0.1:1", key)) == Status.Done, "a socket of a client");
        }
        int clients = OpenFiles();
        Check(clients < before + Count / 2, "clients that were disposed have no sockets");
        for (int i = 0; i < Count; i++)
            using (Server server = new Server(config)) server.CreateWaker().Dispose();
        Check(OpenFiles() < clients + Count / 2, "servers and wakers that were disposed have no sockets");
        byte[] content = new byte[TransferBytes];
        Process process = Process.GetCurrentProcess();
        long memory = process.WorkingSet64;
        for (int i = 0; i < Count; i++) new Transfer(content).Dispose();
        process.Refresh();
        Check(process.WorkingSet64 - memory < Count / 2 * TransferBytes, "transfers that were disposed have no memory");
    }
}
