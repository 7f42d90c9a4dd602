// The echo of `cargo xtask bench-c` in C#. `echo.rs` and `echo.c` do the same.
//
// Client and server of one program on loopback. For each line of the input the program sends 64 messages a turn and
// takes their echoes, and prints the processor time of an echo in nanoseconds, the turns of 64 echoes, and the garbage
// in bytes.
using System;
using System.Runtime.InteropServices;
using Slipgate;

static class Echo
{
    const int Messages = 64, WarmUp = 64 * 2000, Echoes = 64 * 1000, Wait = 500, ProcessorClock = 2;
    // Messages whose echoes have not come back: less than the queue of a channel holds.
    const int MaxOutstanding = 192;

    [StructLayout(LayoutKind.Sequential)]
    struct Time { public IntPtr Seconds, Nanoseconds; }

    [DllImport("libc")] static extern int clock_gettime(int clock, out Time time);

    static Server server;
    static Client client;
    static byte chat;
    static int turns, sent, echoes;
    static readonly byte[] message = new byte[64];

    static double ProcessorTime()
    {
        Time time;
        Check(clock_gettime(ProcessorClock, out time) == 0);
        return (double)time.Seconds * 1e9 + (double)time.Nanoseconds;
    }

    static void Check(bool condition)
    {
        if (!condition) throw new Exception("a check failed");
    }

    // Runs a turn of the server and one of the client, which sends 64 messages unless many are on their way.
    static void Turn()
    {
        int before = echoes;
        Event found;
        turns++;
        server.BeginTurn();
        while (server.TryNext(out found))
            if (found.Kind == EventKind.Message)
                Check(server.SendMessage(found.Client, found.Channel, found.Bytes) == Status.Done);
        server.EndTurn();
        client.BeginTurn();
        while (client.TryNext(out found))
            if (found.Kind == EventKind.Message && found.Bytes.SequenceEqual(message)) echoes++;
        if (client.State == ClientState.Connected && sent - echoes <= MaxOutstanding - Messages)
        {
            for (int i = 0; i < Messages; i++) Check(client.SendMessage(chat, message) == Status.Done);
            sent += Messages;
        }
        client.EndTurn();
        if (echoes == before) Check(client.Wait(Wait) == Status.Done);
    }

    // Takes this many echoes, and returns the processor time of one in nanoseconds.
    static double Measure(int wanted)
    {
        double before = ProcessorTime();
        sent -= echoes;
        echoes = turns = 0;
        while (echoes < wanted) Turn();
        return (ProcessorTime() - before) / echoes;
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
        Measure(WarmUp);
        while (Console.ReadLine() != null)
        {
            GC.Collect();
            long garbage = GC.GetTotalMemory(false);
            double time = Measure(Echoes);
            garbage = GC.GetTotalMemory(false) - garbage;
            Console.WriteLine("{0:F1} {1:F2} {2}", time, (double)turns * Messages / echoes, garbage);
        }
        client.Dispose();
        server.Dispose();
    }
}
