// Tuned C baseline: multi-router PULL with withdrawn messages on two pools of n/2 servers, server by server, as a uniformised
// jump chain: arrivals at rate lambda n, services at rate mu_j at every server of pool j, one tick per event, a service at
// an idle server included.
//
//     gcc -O3 -march=native -o pull pull.c
//     ./pull N ROUTERS LAMBDA MU1 BUFFER1 MU2 BUFFER2 TICKS SEED        BUFFER: 1..127, the customer in service included
//
// prints "N ROUTERS TICKS seconds events_per_second p_wait p_block busy1 busy2 messages_per_customer"; the last five over
// the timed ticks, which follow a warm-up of TICKS / 4 from the empty system. One process uses one core. A tick takes one
// 64-bit word of xoshiro256++: 32 bits for its type, 32 for router and rank.
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct { uint32_t where; uint16_t router; int8_t length, buffer; } server;  // where: index in its router's list

static uint64_t s[4];

static inline uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

static inline uint64_t next(void) {
    uint64_t result = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = rotl(s[3], 45);
    return result;
}

static void seed(uint64_t x) {  // splitmix64
    for (int i = 0; i < 4; i++) {
        uint64_t z = x += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        s[i] = z ^ z >> 31;
    }
}

static server *all;
static uint32_t **held, *count;  // the servers with a message at each router, and their number
static uint32_t n, routers, half, arrival, first;
static uint64_t arrivals, waited, lost, messages, idle_ticks[2];

static inline void send(uint32_t k, uint32_t r) {
    all[k].router = (uint16_t)r;
    all[k].where = count[r];
    held[r][count[r]++] = k;
}

static inline void withdraw(uint32_t k) {
    uint32_t r = all[k].router, last = held[r][--count[r]];
    held[r][all[k].where] = last;
    all[last].where = all[k].where;
}

static void run(uint64_t ticks) {
    for (uint64_t t = 0; t < ticks; t++) {
        uint64_t word = next(), product = (word & 0xffffffffu) * routers;
        uint32_t type = (uint32_t)(word >> 32), r = (uint32_t)(product >> 32);
        uint64_t rest = product & 0xffffffffu;
        if (type < arrival) {
            arrivals++;
            if (count[r]) {
                uint32_t k = held[r][rest * count[r] >> 32];
                withdraw(k);
                all[k].length = 1;
            } else {
                uint32_t k = (uint32_t)(rest * n >> 32);
                if (all[k].length == 0) {
                    withdraw(k);
                    all[k].length = 1;
                } else if (all[k].length < all[k].buffer) {
                    waited++;
                    all[k].length++;
                } else {
                    lost++;
                }
            }
        } else {
            uint32_t second = type >= first, k = second * half + (uint32_t)(rest * half >> 32);
            if (all[k].length == 0) {
                idle_ticks[second]++;
            } else if (--all[k].length == 0) {
                messages++;
                send(k, r);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 10) {
        fprintf(stderr, "usage: %s N ROUTERS LAMBDA MU1 BUFFER1 MU2 BUFFER2 TICKS SEED\n", argv[0]);
        return 2;
    }
    n = (uint32_t)atoi(argv[1]);
    routers = (uint32_t)atoi(argv[2]);
    half = n / 2;
    double lambda = atof(argv[3]), mu1 = atof(argv[4]), mu2 = atof(argv[6]), total = lambda + (mu1 + mu2) / 2;
    uint64_t ticks = strtoull(argv[8], NULL, 10);
    if (n < 2 || n % 2 || routers < 1 || routers > 65536 || !(lambda > 0 && mu1 > 0 && mu2 > 0) || !ticks) {
        fprintf(stderr, "needs an even N, 1 <= ROUTERS <= 65536, rates > 0 and TICKS > 0\n");
        return 2;
    }
    arrival = (uint32_t)(lambda / total * 4294967296.0);
    first = (uint32_t)((lambda + mu1 / 2) / total * 4294967296.0);
    seed(strtoull(argv[9], NULL, 10));
    all = calloc(n, sizeof *all);
    held = malloc(routers * sizeof *held);
    count = calloc(routers, sizeof *count);
    for (uint32_t r = 0; r < routers; r++) held[r] = malloc(n * sizeof **held);
    for (uint32_t k = 0; k < n; k++) {
        all[k].buffer = (int8_t)atoi(argv[k < half ? 5 : 7]);
        send(k, (uint32_t)((next() >> 32) * routers >> 32));
    }
    run(ticks / 4);
    arrivals = waited = lost = messages = idle_ticks[0] = idle_ticks[1] = 0;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    run(ticks);
    clock_gettime(CLOCK_MONOTONIC, &b);
    double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec), share = (double)ticks / 2 / total;
    printf("%u %u %llu %.4f %.4g %.6f %.6f %.6f %.6f %.6f\n", n, routers, (unsigned long long)ticks, seconds,
           (double)ticks / seconds, (double)waited / (double)arrivals, (double)lost / (double)arrivals,
           1 - (double)idle_ticks[0] / (share * mu1), 1 - (double)idle_ticks[1] / (share * mu2),
           (double)messages / (double)arrivals);
    return 0;
}
