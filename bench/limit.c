// Tuned C baseline: the supermarket model (join the shorter of two servers sampled with replacement) as a uniformised
// jump chain: n servers of rate 1, arrivals at rate lambda n, one tick per event, a service at an idle server included.
//
//     gcc -O3 -march=native -o limit limit.c -lm
//     ./limit FORM N LAMBDA TICKS SEED
//
// FORM: branching (one length per server, as most people write it), plain (the same without branches), servers (the same
// with the random numbers in vector registers, by intrinsics) or occupancy (servers per length, in vectors). It prints
// "FORM N TICKS seconds events_per_second S1 S2 S3 S4 S5", S_i = fraction of servers with at least i customers.
// Only the tick loop is timed, after a warm-up of TICKS / 4 from the fixed point S_i = lambda^(2^i - 1). One process
// uses one core; occupancy runs one system per vector lane in it, TICKS counts them all and S_i is their mean. TICKS is
// rounded up to a multiple of 64.
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined __AVX512BW__ && defined __AVX512DQ__
#define BYTES 64  // of a vector
#elif defined __AVX2__
#define BYTES 32
#else
#define BYTES 16
#endif
typedef uint64_t words __attribute__((vector_size(BYTES), may_alias));  // one 64-bit stream per lane
typedef int32_t ints __attribute__((vector_size(BYTES / 2), may_alias));
typedef int16_t shorts __attribute__((vector_size(BYTES / 4), may_alias));

enum { WIDTH = BYTES / 8, AHEAD = 64, IDLE = 64, MAX_LEVELS = 24 };

// ---- random words
// xoshiro256++ 1.0 (D. Blackman and S. Vigna, Scrambled linear pseudorandom number generators, ACM TOMS 47(4), 2021),
// one generator per lane, their states filled by splitmix64 as the authors advise.
static words s0, s1, s2, s3;

INLINE words rotl(words x, int k) { return (x << k) | (x >> (64 - k)); }

INLINE words next(void) {
    words result = rotl(s0 + s3, 23) + s0, t = s1 << 17;
    s2 ^= s0, s3 ^= s1, s1 ^= s2, s0 ^= s3, s2 ^= t, s3 = rotl(s3, 45);
    return result;
}

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// Products of the low halves: one instruction, which the compiler does not find by itself.
INLINE words multiply(words a, words b) {
#if BYTES == 64
    return (words)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif BYTES == 32
    return (words)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

// ---- the marks of WIDTH ticks: two ranks below n and service (all ones) or arrival (0)
// A 64-bit word is a fraction: times n, its integer part is the first rank and what is left is a uniform fraction again;
// times n, the second rank. What is left then decides the type while it has 32 bits, n <= 2^16; above that another word
// decides it for 2 WIDTH ticks.
struct chain { uint64_t n, threshold; int small; };  // threshold: lambda / (1 + lambda) in units of 2^-64
struct marks { words first, second, service; };

INLINE struct marks draw(struct chain c, words type) {
    words n = c.n - (words){}, w = next(), low = multiply(w, n), high = multiply(w >> 32, n) + (low >> 32);
    words first = high >> 32;
    low = multiply(low, n), high = multiply(high, n) + (low >> 32);
    if (c.small) type = high << 32;
    return (struct marks){first, high >> 32, (words)(type >= c.threshold)};
}

// ---- form `servers`: the length of each server in a byte (lengths stay far below 256: tails fall doubly exponentially)
// A mark is the first server in the low half and the second in the high half. A service has in place of the second one
// of IDLE dummies before the array, always 0, so that "second shorter than first" means "first not empty" and both types
// are one branchless update. Storing both lengths keeps the store addresses independent of what was loaded: storing only
// the changed one makes each load wait for the comparison before it, and is three times slower. The first is stored
// last, which is right also if both are the same server. Marks are made AHEAD ticks early, in the same loop, so that
// the vector work on them overlaps the updates; out of order execution then keeps enough cache misses in flight that
// prefetching gains nothing at n = 1e7 and loses 20 % at n = 1e5.
INLINE void update(uint8_t *x, int64_t mark) {
    uint32_t first = (uint32_t)mark;
    int64_t second = mark >> 32;
    int service = (int)(mark >> 63);  // -1 for a service, 0 for an arrival
    uint8_t a = x[first], b = x[second], shorter = b < a;
    x[second] = (uint8_t)(b + (shorter & ~service));
    x[first] = (uint8_t)(a + 1 + service - shorter);
}

INLINE words pack(struct marks m) {
    words dummy = m.second | ((uint64_t)-IDLE & m.service);  // -IDLE..-1 for a service
    return m.first | dummy << 32;
}

INLINE void servers_loop(uint8_t *x, struct chain c, uint64_t ticks) {
    int64_t ring[AHEAD] __attribute__((aligned(64)));
    for (uint64_t t = 0; t < ticks + AHEAD; t += 2 * WIDTH) {
        int64_t *mark = ring + t % AHEAD;
        if (t >= AHEAD)
#pragma GCC unroll 16
            for (int i = 0; i < 2 * WIDTH; i++) update(x, mark[i]);
        words type = c.small ? (words){} : next();
        *(words *)mark = pack(draw(c, type));
        *(words *)(mark + WIDTH) = pack(draw(c, type << 32));
    }
}

// ---- form `plain`: the same update, marks by one scalar generator in step with it, as a careful C programmer writes it
static uint64_t plain_state[4];

INLINE uint64_t plain_next(void) {
    uint64_t *s = plain_state, sum = s[0] + s[3], result = (sum << 23 | sum >> 41) + s[0], t = s[1] << 17;
    s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t, s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

INLINE void plain_loop(uint8_t *x, struct chain c, uint64_t ticks) {
    for (uint64_t t = 0; t < ticks; t++) {
        unsigned __int128 first = (unsigned __int128)plain_next() * c.n, second = (unsigned __int128)(uint64_t)first * c.n;
        uint64_t type = c.small ? (uint64_t)second : plain_next();
        int64_t service = -(int64_t)(type >= c.threshold), other = (int64_t)(second >> 64);
        other ^= (other ^ -IDLE) & service;
        update(x, (int64_t)((uint64_t)other << 32 | (uint64_t)(first >> 64)));
    }
}

// ---- form `branching`: the same draws, updates as most people write them: a type or a length that is guessed wrong costs
// the processor its queue of instructions
INLINE void branching_loop(uint8_t *x, struct chain c, uint64_t ticks) {
    for (uint64_t t = 0; t < ticks; t++) {
        unsigned __int128 draw = (unsigned __int128)plain_next() * c.n, again = (unsigned __int128)(uint64_t)draw * c.n;
        uint64_t first = (uint64_t)(draw >> 64), second = (uint64_t)(again >> 64);
        uint64_t type = c.small ? (uint64_t)again : plain_next();
        if (type >= c.threshold) {
            if (x[first]) x[first]--;
        } else if (x[second] < x[first])
            x[second]++;
        else
            x[first]++;
    }
}

// ---- form `occupancy`: x[i] = number of servers with more than i customers, one independent system per vector lane
// With the servers sorted by falling length, the server of rank m has #{i: m < x[i]} customers and the shorter of two is
// the larger rank. A mark is the rank for an arrival, its complement for a service.
INLINE words rank(struct marks m) {
    words larger = (words)(m.second > m.first) & ~m.service;
    return m.first ^ ((m.first ^ m.second) & larger) ^ m.service;
}

#define OCCUPANCY_LOOP(name, T, pieces)                                                                         \
    typedef T name##_lanes __attribute__((vector_size(BYTES)));                                                 \
    INLINE void name##_loop(name##_lanes *state, int levels, struct chain c, uint64_t ticks) {                  \
        enum { LANES = BYTES / sizeof(T), DEPTH = 4 };                                                          \
        name##_lanes x[MAX_LEVELS], ring[DEPTH] = {};                                                           \
        for (int i = 0; i < levels; i++) x[i] = state[i];                                                       \
        for (uint64_t t = 0; t < ticks / LANES + DEPTH; t++) {                                                  \
            name##_lanes mark = ring[t % DEPTH], service = mark >> (8 * sizeof(T) - 1), length = service;       \
            if (t >= DEPTH) {                                                                                   \
                _Pragma("GCC unroll 24") for (int i = 0; i < levels; i++) length -= (mark ^ service) < x[i];    \
                _Pragma("GCC unroll 24") for (int i = 0; i < levels; i++) x[i] += (length == (T)i) & (service | 1);\
            }                                                                                                   \
            words type = {};                                                                                    \
            _Pragma("GCC unroll 4") for (int i = 0; i < LANES / WIDTH; i++) {                                   \
                type = i & 1 ? type << 32 : c.small ? type : next();                                            \
                ((pieces *)&ring[t % DEPTH])[i] = __builtin_convertvector(rank(draw(c, type)), pieces);         \
            }                                                                                                   \
        }                                                                                                       \
        for (int i = 0; i < levels; i++) state[i] = x[i];                                                       \
    }

OCCUPANCY_LOOP(narrow, int16_t, shorts)  // BYTES / 2 systems, n < 2^15
OCCUPANCY_LOOP(wide, int32_t, ints)      // BYTES / 4 systems

// ---- runs: the loops are compiled for fixed numbers of levels and kinds of draw, so that the counts stay in registers
#define WITH_LEVELS(loop, state, c, ticks)                 \
    {                                                      \
        if (levels == 8) loop(state, 8, c, ticks);         \
        else if (levels == 16) loop(state, 16, c, ticks);  \
        else loop(state, MAX_LEVELS, c, ticks);            \
    }

enum { PLAIN = 1, BRANCHING };  // forms whose random numbers are scalar

static void __attribute__((noinline)) run(int scalar, uint8_t *length, void *x, int narrow, int levels, uint64_t n,
                                          uint64_t threshold, uint64_t ticks) {
    struct chain small = {n, threshold, 1}, large = {n, threshold, 0};
    int one_word = n <= 1 << 16;
    if (scalar == BRANCHING) branching_loop(length, one_word ? small : large, ticks);
    else if (scalar == PLAIN) plain_loop(length, one_word ? small : large, ticks);
    else if (length && one_word) servers_loop(length, small, ticks);
    else if (length) servers_loop(length, large, ticks);
    else if (narrow) WITH_LEVELS(narrow_loop, x, small, ticks)
    else if (one_word) WITH_LEVELS(wide_loop, x, small, ticks)
    else WITH_LEVELS(wide_loop, x, large, ticks)
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    const char *form = argc == 6 ? argv[1] : "";
    int scalar = !strcmp(form, "plain") ? PLAIN : !strcmp(form, "branching") ? BRANCHING : 0;
    int servers = scalar || !strcmp(form, "servers");
    double size = argc == 6 ? atof(argv[2]) : 0, lambda = argc == 6 ? atof(argv[3]) : 0, count = argc == 6 ? atof(argv[4]) : 0;
    if (argc != 6 || (!servers && strcmp(form, "occupancy")) || !(size >= 100 && size <= 1 << 25) ||
        !(lambda > 0 && lambda < 1) || !(count >= 1 && count < 1e15)) {
        fprintf(stderr, "usage: limit branching|plain|servers|occupancy N LAMBDA TICKS SEED, 100 <= N <= 2^25, 0 < LAMBDA < 1, 1 <= TICKS < 1e15\n");
        return 2;
    }
    uint64_t n = (uint64_t)size, ticks = ((uint64_t)count + AHEAD - 1) / AHEAD * AHEAD, seed = strtoull(argv[5], NULL, 10);
    uint64_t threshold = (uint64_t)(lambda / (1 + lambda) * 0x1p32) << 32;
    for (int i = 0; i < WIDTH; i++)
        s0[i] = splitmix64(&seed), s1[i] = splitmix64(&seed), s2[i] = splitmix64(&seed), s3[i] = splitmix64(&seed);
    for (int i = 0; i < 4; i++) plain_state[i] = splitmix64(&seed);

    // enough levels that n servers at the fixed point expect nobody above
    int levels = 8, narrow = n < 1 << 15, lanes = BYTES / (narrow ? 2 : 4);
    while (levels < MAX_LEVELS && (double)n * pow(lambda, exp2(levels + 1) - 1) > 1e-12) levels += 8;
    size_t page = 1 << 21, bytes = (n + IDLE + page - 1) / page * page;  // huge pages, where the system has them
    uint8_t *memory = aligned_alloc(page, bytes), *length = memory + IDLE;
    static union { int16_t narrow[MAX_LEVELS][BYTES / 2]; int32_t wide[MAX_LEVELS][BYTES / 4]; } x __attribute__((aligned(64)));
    if (!memory) return perror("limit"), 1;
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    for (int i = 0; i < MAX_LEVELS; i++) {
        uint64_t longer = (uint64_t)((double)n * pow(lambda, exp2(i + 1) - 1) + 0.5);
        for (uint64_t k = 0; k < longer; k++) length[k]++;
        for (int r = 0; r < lanes; r++)
            if (narrow) x.narrow[i][r] = (int16_t)longer;
            else x.wide[i][r] = (int32_t)longer;
    }
    for (uint64_t k = n - 1; k > 0; k--) {  // Fisher and Yates
        uint64_t other = (splitmix64(&seed) >> 32) * (k + 1) >> 32;
        uint8_t kept = length[k];
        length[k] = length[other], length[other] = kept;
    }

    uint8_t *array = servers ? length : NULL;
    run(scalar, array, &x, narrow, levels, n, threshold, ticks / 4 / AHEAD * AHEAD);
    double start = now();
    run(scalar, array, &x, narrow, levels, n, threshold, ticks);
    double seconds = now() - start;

    printf("%s %llu %llu %.6f %.6g", form, (unsigned long long)n, (unsigned long long)ticks, seconds, (double)ticks / seconds);
    for (int i = 0; i < 5; i++) {
        uint64_t total = 0;
        if (servers) for (uint64_t k = 0; k < n; k++) total += length[k] > i;
        else for (int r = 0; r < lanes; r++) total += (uint64_t)(narrow ? x.narrow[i][r] : x.wide[i][r]);
        printf(" %.6f", (double)total / (double)n / (servers ? 1 : lanes));
    }
    puts("");
    free(memory);
    return 0;
}
