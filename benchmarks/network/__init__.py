"""How long a round takes on several hosts, and how many bytes it sends, where the network is slow.

    python -m benchmarks.network [--hosts 4,16] [--neurons 64,256,1024] [--bandwidth 1GB,100MB,10MB,1MB,100KB]
                                 [--rows-per-host N] [--rounds N] [--quick] [--output FOLDER]
    python -m benchmarks.network.check       # checks the hosts: rates, counters, and that nothing is left

Hosts are network namespaces of this machine, each with one interface of limited bandwidth in both directions, all on
one bridge. This needs Linux, root, and the commands `ip` and `tc` (apt-get install iproute2); without them the exit
code is 2. The network of the root namespace is not changed, and nothing is routed out.

Bytes are those of the interfaces' counters. They include headers: 4.5 % up to 30 MB/s, where the kernel cuts TCP's data
into packets before it counts them, and almost nothing above. All hosts share the cores of this machine. So each host
has few rows, the network takes most of the time, and the table also has the time of a round without a limit. Only
queues delay messages: small messages are as fast as on the best networks. A core cannot carry 1 GB/s, and two cores
serve sixteen hosts, so 1 GB/s means "as fast as this machine can".
"""
