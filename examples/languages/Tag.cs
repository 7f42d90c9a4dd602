// A client of the game of tag in C#, see `tag_server.rs`: a bot that chases the nearest player when it is "it", and
// otherwise flees.
//
//     mono tag.exe 127.0.0.1:40000 5 Emil
using System;
using System.Collections.Generic;
using System.Text;
using Slipgate;

struct Field { public int X, Y; }

sealed class World
{
    public ulong It;
    public readonly Dictionary<ulong, Field> Fields = new Dictionary<ulong, Field>();
}

// Reads messages that are encoded by bincode: numbers up to 250 take a byte, larger ones a mark and their bytes.
ref struct Reader
{
    private ReadOnlySpan<byte> bytes;
    public Reader(ReadOnlySpan<byte> bytes) { this.bytes = bytes; }

    private byte Byte()
    {
        byte first = bytes[0];
        bytes = bytes.Slice(1);
        return first;
    }

    private ulong Number()
    {
        byte first = Byte();
        if (first <= 250) return first;
        ulong number = 0;
        for (int i = 0; i < 2 << (first - 251) && i < 8; i++) number |= (ulong)Byte() << 8 * i;
        return number;
    }

    // Reads into the same world in each turn, so that the loop makes no garbage.
    public void ReadInto(World world)
    {
        world.It = Number();
        world.Fields.Clear();
        for (ulong left = Number(); left > 0; left--)
        {
            ulong id = Number();
            int x = (sbyte)Byte();
            world.Fields[id] = new Field { X = x, Y = (sbyte)Byte() };
        }
    }
}

sealed class Player : IDisposable
{
    // The game's id and key: as in `tag/mod.rs`, and only for development.
    private const ulong ProtocolId = 0x74616721;
    private const string Key = "a key that every player may have";
    private const uint TickUs = 50000;

    private readonly Client client;
    private readonly byte steps, state, news;
    private readonly ulong id;
    private readonly World world = new World();
    private readonly byte[] step = new byte[2];

    public Player(string address, ulong id, string name)
    {
        this.id = id;
        using (Traffic traffic = new Traffic(TrafficKind.Channels, 1))
        {
            steps = traffic.Add(ChannelKind.Sequenced, "steps");
            state = traffic.Add(ChannelKind.Sequenced, "state", newestOnly: true);
            news = traffic.Add(ChannelKind.ReliableOrdered, "news");
            client = new Client(traffic);
        }
        // The backend of a real game mints the token.
        byte[] token = Tokens.Issue(ProtocolId, id, address, Encoding.ASCII.GetBytes(Key), name);
        if (client.Connect(token) != Status.Done) throw new ArgumentException("this is no connect token");
    }

    public void Dispose() { client.Dispose(); }

    // Handles what has arrived, sends a step, and sleeps until more happens. Returns false when the game has ended.
    public bool Turn()
    {
        client.BeginTurn();
        NetEvent found;
        while (client.TryNext(out found))
        {
            if (found.Kind == EventKind.Message && found.Channel == state) new Reader(found.Bytes).ReadInto(world);
            if (found.Kind == EventKind.Message && found.Channel == news) Console.WriteLine(found.Text());
        }
        // If it is refused, the next step is newer.
        if (ChooseStep()) client.SendMessage(steps, step);
        client.EndTurn();
        client.Wait(TickUs);
        if (client.CloseReason != null) Console.WriteLine(client.CloseReason);
        return client.CloseReason == null;
    }

    // Chases the nearest player when this one is "it", and otherwise flees from the player that is.
    private bool ChooseStep()
    {
        Field me, nearest = new Field();
        if (!world.Fields.TryGetValue(id, out me)) return false;
        bool isIt = world.It == id;
        int shortest = int.MaxValue;
        foreach (KeyValuePair<ulong, Field> other in world.Fields)
        {
            int distance = Math.Max(Math.Abs(other.Value.X - me.X), Math.Abs(other.Value.Y - me.Y));
            if (other.Key == id || (!isIt && other.Key != world.It) || distance >= shortest) continue;
            shortest = distance;
            nearest = other.Value;
        }
        step[0] = Step(isIt, me.X, nearest.X);
        step[1] = Step(isIt, me.Y, nearest.Y);
        return shortest < int.MaxValue;
    }

    private static byte Step(bool isIt, int from, int to)
    {
        return (byte)(sbyte)(isIt ? Math.Sign(to - from) : to > from ? -1 : 1);
    }

    static int Main(string[] arguments)
    {
        if (arguments.Length != 3)
        {
            Console.WriteLine("usage: tag ADDRESS ID NAME");
            return 2;
        }
        using (Player player = new Player(arguments[0], ulong.Parse(arguments[1]), arguments[2]))
        {
            while (player.Turn()) { }
        }
        return 0;
    }
}
