// Client and server of one program on loopback: echoes 10,000 messages without garbage. Prints "ok" at the end.
using System;
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

    static void Check(bool condition, string what)
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
            if (found.Kind == EventKind.Message) replies.Add(found.Client, found.Channel, found.Bytes);
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
                if (found.Kind == EventKind.Packet) Check(found.Bytes.Length == message.Length, "the bytes of the packet");
                guest.EndTurn();
                guest.Wait(200);
            }
            guest.Dispose();
            Check(found.Kind == EventKind.Packet && found.Bytes.Length == 0, "an event after Dispose");
        }
    }

    // More messages than the first memory of a batch holds, of several lengths, with and without options.
    static void SendBatches()
    {
        const int Count = 200;
        MessageBatch batch = new MessageBatch(messages: 0, bytes: 0);
        Check(batch.Count == 0 && client.SendMessages(batch) == Status.Done, "an empty batch");
        for (int i = 0; i < Count; i++)
        {
            byte[] content = new byte[i];
            for (int j = 0; j < i; j++) content[j] = (byte)i;
            if (i % 3 == 0) batch.Add(chat, content, new SendOptions { Receipt = (ulong)i });
            else batch.Add(chat, content);
        }
        batch.Add(99, message);
        batch.Add(chat, message);
        Check(batch.Count == Count + 2 && client.SendMessages(batch) == Status.NoChannel, "the first refused one");
        for (int i = 0; i < batch.Count; i++)
            Check(batch.StatusOf(i) == (i == Count ? Status.NoChannel : Status.Done), "its own status");
        Check(client.SendMessages(batch) == Status.Done && batch.Count == 0, "a batch leaves once");
        int received = 0, arrived = 0;
        ulong next = 0;
        for (int turns = 0; received <= Count || arrived < (Count + 2) / 3; turns++)
        {
            Check(turns < MaxTurns, "a batch arrives in time");
            NetEvent found;
            server.BeginTurn();
            while (server.TryNext(out found))
            {
                if (found.Kind != EventKind.Message) continue;
                Check(found.Bytes.Length == (received == Count ? message.Length : received), "the length in a batch");
                foreach (byte part in found.Bytes) Check(received == Count || part == (byte)received, "the content");
                received++;
            }
            server.EndTurn();
            client.BeginTurn();
            while (client.TryNext(out found))
            {
                if (found.Kind != EventKind.Receipt) continue;
                Check(found.Number % 3 == 0 && found.Number >= next, "the options of a message");
                next = found.Number;
                arrived++;
            }
            client.EndTurn();
            client.Wait(200);
        }
        batch.Add(handle, chat, message, new SendOptions { Receipt = 1 });
        batch.Add(handle + 1, chat, message);
        Check(batch.Count == 2 && server.SendMessages(batch) == Status.Gone, "a client that is gone");
        Check(batch.StatusOf(0) == Status.Done && batch.StatusOf(1) == Status.Gone, "the statuses of the server");
        batch.Add(chat, message);
        batch.Clear();
        Check(batch.Count == 0, "Clear");
        int before = echoes;
        Until(() => echoes == before + 1);
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
        try
        {
            using (new Client(traffic)) Check(false, "channels that were freed are refused");
        }
        catch (ObjectDisposedException) { }
        Check(client.Connect(new byte[7]) == Status.Token, "a token has 2048 bytes");
        byte[] token = Tokens.Issue(ProtocolId, 5, server.Address(), key, "Ann");
        Check(client.Connect(token) == Status.Done && client.Connect(token) == Status.Busy, "connects once");
        Until(() => client.State == ClientState.Connected && handle != 0);
        Check(Log.NextLine().StartsWith("INFO ") && Log.SetLevel(LogLevel.Off) == Status.Done, "a line of the server");
        Check(server.SetUplink(12500000) == Status.Done, "a limit of the uplink");

        Check(client.SendMessage(chat, message, new SendOptions { Receipt = 7 }) == Status.Done, "a receipt");
        Until(() => receipts == 1 && echoes == 1);
        SendBatches();
        using (Transfer map = new Transfer(new byte[100000]))
        {
            uint id;
            Check(server.SendTransfer(handle, maps, map, 1, out id) == Status.Done, "a transfer");
        }
        Until(() => transfers == 100000);
        PathStats path;
        Budget budget;
        Remaining remaining;
        ClientInfo info;
        ulong found, count;
        string name;
        Check(client.TryGetPath(out path) && path.RoundTripMs > 0, "a path");
        Check(client.TryGetBudget(out budget) && budget.Bytes > 0, "a budget");
        Check(client.TryGetRemaining(chat, out remaining) && remaining.Messages > 0, "room");
        Check(server.TryGetInfo(handle, out info) && info.ClientId == 5, "information");
        unsafe { Check(info.UserData[0] == 'A' && info.Address[0] == 127, "user data and address"); }
        Check(server.TryFind(5, out found) && found == handle && server.Connected == 1, "a client");
        Check(server.Clients(new ulong[4]) == 1 && client.Discards(0, out count, out name) == Status.Done, "counters");
        using (WakerHandle waker = server.CreateWaker()) Check(Server.Wake(waker) == Status.Done, "wakes");

        // The first round compiles the methods and fills all buffers.
        Echo(1000);
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
        try
        {
            new Server(new ServerConfig { Bind = "here" }).Dispose();
            Check(false, "a server needs keys");
        }
        catch (SlipgateException error) { Check(error.Status == Status.Argument && error.Message.Contains("keys"), "a text"); }
        client.Dispose();
        server.Dispose();
        EventAfterDispose(key);
        Console.WriteLine("ok");
    }
}
