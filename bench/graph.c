// Tuned C baseline: the supermarket model at the vertices of a graph, d = 2, one of the `degree` neighbours asked at random, as
// a uniformised jump chain: arrivals at rate lambda n, services at rate n, one tick per event, a service at an idle server
// included.
//
//     gcc -O3 -march=native -o graph graph.c
//     ./graph KIND N DEGREE LAMBDA TICKS SEED        KIND: ring (DEGREE nearest vertices, even) or random (see below)
//
// prints "KIND N DEGREE TICKS seconds events_per_second mean_queue_length S1 S2 S3"; the last four are averages over 32
// snapshots of the timed ticks, which follow a warm-up of TICKS / 4 from the empty system. One process uses one core. A tick
// takes one 64-bit word of xoshiro256++: vertex, neighbour, tie and type are read off it one after the other.
// `random`: the union of DEGREE / 2 random cycles through all vertices, so DEGREE must be even; parallel edges may occur.
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static uint32_t n, degree, arrival;
static uint32_t *neighbour;  // (n, degree)
static uint8_t *length;

static inline uint32_t below(uint64_t *fraction, uint32_t bound) {
    unsigned __int128 product = (unsigned __int128)*fraction * bound;
    *fraction = (uint64_t)product;
    return (uint32_t)(product >> 64);
}

static void run(uint64_t ticks) {
    for (uint64_t t = 0; t < ticks; t++) {
        uint64_t word = next();
        uint32_t v = below(&word, n), w = neighbour[v * (uint64_t)degree + below(&word, degree)];
        uint32_t tie = below(&word, 2), arrives = (uint32_t)(word >> 32) < arrival;
        uint32_t there = arrives & (length[w] + tie <= length[v]);  // tie = 0: w takes equal lengths
        uint32_t k = there ? w : v;
        length[k] = (uint8_t)(length[k] + (arrives ? 1 : -(length[k] > 0)));
    }
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: %s ring|random N DEGREE LAMBDA TICKS SEED\n", argv[0]);
        return 2;
    }
    int random = !strcmp(argv[1], "random");
    n = (uint32_t)atoi(argv[2]);
    degree = (uint32_t)atoi(argv[3]);
    double lambda = atof(argv[4]);
    uint64_t ticks = strtoull(argv[5], NULL, 10);
    if (n < 3 || degree < 2 || degree % 2 || degree >= n || !(lambda > 0) || ticks < 32) {
        fprintf(stderr, "needs N >= 3, an even DEGREE below N, LAMBDA > 0 and TICKS >= 32\n");
        return 2;
    }
    arrival = (uint32_t)(lambda / (1 + lambda) * 4294967296.0);
    seed(strtoull(argv[6], NULL, 10));
    neighbour = malloc((uint64_t)n * degree * sizeof *neighbour);
    length = calloc(n, 1);
    uint32_t *order = malloc(n * sizeof *order);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t k = 0; k < degree / 2; k++) {
        uint32_t step = random ? 1 : k + 1;
        for (uint32_t i = n - 1; random && i; i--) {
            uint64_t word = next();
            uint32_t j = below(&word, i + 1), x = order[i];
            order[i] = order[j];
            order[j] = x;
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t a = order[i], b = order[(i + step) % n];
            neighbour[a * (uint64_t)degree + 2 * k] = b;
            neighbour[b * (uint64_t)degree + 2 * k + 1] = a;
        }
    }
    run(ticks / 4);
    double seconds = 0, mean = 0, tail[3] = {0};
    for (int part = 0; part < 32; part++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        run(ticks / 32);
        clock_gettime(CLOCK_MONOTONIC, &b);
        seconds += (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        for (uint32_t i = 0; i < n; i++) {
            mean += length[i];
            for (int level = 0; level < 3; level++) tail[level] += length[i] > level;
        }
    }
    double all = 32.0 * n;
    printf("%s %u %u %llu %.4f %.4g %.5f %.5f %.5f %.5f\n", argv[1], n, degree, (unsigned long long)(ticks / 32 * 32), seconds,
           (double)(ticks / 32 * 32) / seconds, mean / all, tail[0] / all, tail[1] / all, tail[2] / all);
    return 0;
}
