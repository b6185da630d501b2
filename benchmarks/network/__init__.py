"""How long a round takes on several hosts, and how many bytes it sends, where the network is slow.

    python -m benchmarks.network [--hosts 4,16] [--neurons 64,256,1024] [--bandwidth 1GB,100MB,10MB,1MB,100KB]
                                 [--rows-per-host N] [--rounds N] [--quick] [--output FOLDER]
    python -m benchmarks.network.hosts       # checks the hosts themselves: rates, counters, and that nothing is left

Hosts are network namespaces of this machine, each with one interface of limited bandwidth in both directions, all on
one bridge. Needed are Linux, root, and the commands `ip` and `tc` (apt-get install iproute2); without them the exit
code is 2. The root namespace's own network is not touched, and nothing is routed out.

Bytes are those of the interfaces' counters, headers included: 4.5 % up to 30 MB/s, where the kernel cuts what TCP gives
it into packets before they are counted, and next to nothing above. All hosts share this machine's cores: rows are few,
so that the network is what takes time, and the time of a round without a limit is in the table beside the others. There
is no delay but that of the queues, so small messages are as quick as on the best of networks. 1 GB/s is more than a
core can carry, and two cores have sixteen hosts to serve: take it for "as fast as this machine can".
"""
