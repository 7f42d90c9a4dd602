// The echo of `cargo xtask bench-c` in C#. `echo.rs` and `echo.c` do the same.
//
// Client and server of one program on loopback. For each line of the input the program sends rounds of 64 messages,
// waits for their echoes, and prints the processor time of a message in nanoseconds, the turns of a round, and the
// garbage of the rounds in bytes.
using System;
using System.Runtime.InteropServices;
using Slipgate;

static class Echo
{
    const int Messages = 64, WarmUp = 1000, Rounds = 300, Wait = 500, ProcessorClock = 2;

    [StructLayout(LayoutKind.Sequential)]
    struct Time { public IntPtr Seconds, Nanoseconds; }

    [DllImport("libc")] static extern int clock_gettime(int clock, out Time time);

    static Server server;
    static Client client;
    static byte chat;
    static int turns;
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

    // Runs a turn of the server and one of the client. Returns the number of echoes.
    static int Turn()
    {
        int echoes = 0;
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
        client.EndTurn();
        return echoes;
    }

    // Sends 64 messages and takes their echoes.
    static void Round()
    {
        client.BeginTurn();
        for (int i = 0; i < Messages; i++) Check(client.SendMessage(chat, message) == Status.Done);
        client.EndTurn();
        for (int echoes = 0; echoes < Messages;)
        {
            int found = Turn();
            echoes += found;
            if (found == 0) Check(client.Wait(Wait) == Status.Done);
        }
    }

    static void Main()
    {
        Traffic traffic = new Traffic();
        chat = traffic.Add(ChannelKind.ReliableOrdered, "chat");
        byte[] key = Tokens.GenerateKey();
        server = new Server(new ServerConfig { Bind = "127.0.0.1:0", Keys = key, Traffic = traffic, AcceptOldTokens = true });
        client = new Client(traffic);
        for (int i = 0; i < message.Length; i++) message[i] = 7;
        Check(client.Connect(Tokens.Issue(0, 5, server.Address(), key)) == Status.Done);
        while (client.State != ClientState.Connected)
        {
            Turn();
            client.Wait(Wait);
        }
        for (int i = 0; i < WarmUp; i++) Round();
        while (Console.ReadLine() != null)
        {
            GC.Collect();
            turns = 0;
            long garbage = GC.GetTotalMemory(false);
            double before = ProcessorTime();
            for (int i = 0; i < Rounds; i++) Round();
            double time = ProcessorTime() - before;
            garbage = GC.GetTotalMemory(false) - garbage;
            Console.WriteLine("{0:F1} {1:F2} {2}", time / (Rounds * Messages), (double)turns / Rounds, garbage);
        }
        client.Dispose();
        server.Dispose();
    }
}
