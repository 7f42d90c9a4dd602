// The echo of `cargo xtask bench-c` in C#. `echo.rs` and `echo.c` do the same, and `echo.c` gives the reasons.
//
// Client and server of one program on loopback. A turn begins every 2 ms, and the client sends 64 messages in it. For
// each line of the input the program runs as many turns as the line says, and prints the processor time of an echo in
// nanoseconds, without the pauses, the turns of 64 echoes, and the garbage in bytes.
using System;
using System.Runtime.InteropServices;
using Slipgate;

static class Echo
{
    const int Messages = 64, MonotonicClock = 1, ProcessorClock = 2;
    const double TurnNanoseconds = 2e6;
    // Messages whose echoes have not come back: less than the queue of a channel holds.
    const int MaxOutstanding = 192;

    [StructLayout(LayoutKind.Sequential)]
    struct Time { public IntPtr Seconds, Nanoseconds; }

    [DllImport("libc")] static extern int clock_gettime(int clock, out Time time);

    static Server server;
    static Client client;
    static byte chat;
    static int sent, echoes;
    static readonly byte[] message = new byte[64];
    static readonly MessageBatch batch = new MessageBatch();

    // Returns the time of a clock in nanoseconds.
    static double TimeOf(int clock)
    {
        Time time;
        Check(clock_gettime(clock, out time) == 0);
        return (double)time.Seconds * 1e9 + (double)time.Nanoseconds;
    }

    static void Check(bool condition)
    {
        if (!condition) throw new Exception("a check failed");
    }

    static void ServerTurn()
    {
        NetEvent found;
        server.BeginTurn();
        while (server.TryNext(out found))
            if (found.Kind == EventKind.Message)
                batch.Add(found.Client, found.Channel, found.Bytes);
        Check(server.SendMessages(batch) == Status.Done);
        server.EndTurn();
    }

    // Sends 64 messages unless many are on their way.
    static void ClientTurn()
    {
        NetEvent found;
        client.BeginTurn();
        while (client.TryNext(out found))
            if (found.Kind == EventKind.Message && found.Bytes.SequenceEqual(message)) echoes++;
        if (client.State == ClientState.Connected && sent - echoes <= MaxOutstanding - Messages)
        {
            for (int i = 0; i < Messages; i++) batch.Add(chat, message);
            Check(client.SendMessages(batch) == Status.Done);
            sent += Messages;
        }
        client.EndTurn();
    }

    // Runs turns and returns their processor time in nanoseconds.
    static double Run(int turns)
    {
        double time = 0, due = TimeOf(MonotonicClock);
        sent -= echoes;
        echoes = 0;
        for (int i = 0; i < turns; i++)
        {
            double now;
            do { now = TimeOf(MonotonicClock); } while (now < due);
            due = now + TurnNanoseconds;
            double before = TimeOf(ProcessorClock);
            ServerTurn();
            ClientTurn();
            time += TimeOf(ProcessorClock) - before;
        }
        return time;
    }

    static void Main()
    {
        Traffic traffic = new Traffic();
        chat = traffic.Add(ChannelKind.ReliableOrdered, "chat");
        byte[] key = Tokens.GenerateKey();
        server = new Server(new ServerConfig
        {
            Bind = "127.0.0.1:0", Slots = 4, Keys = key, Traffic = traffic, AcceptOldTokens = true,
        });
        client = new Client(traffic);
        for (int i = 0; i < message.Length; i++) message[i] = 7;
        Check(client.Connect(Tokens.Issue(0, 5, server.Address(), key)) == Status.Done);
        string line;
        while ((line = Console.ReadLine()) != null)
        {
            int turns = int.Parse(line);
            GC.Collect();
            long garbage = GC.GetAllocatedBytesForCurrentThread();
            double time = Run(turns);
            garbage = GC.GetAllocatedBytesForCurrentThread() - garbage;
            Console.WriteLine("{0:F1} {1:F3} {2}", time / echoes, (double)turns * Messages / echoes, garbage);
        }
        client.Dispose();
        server.Dispose();
    }
}
