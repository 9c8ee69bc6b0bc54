// Prints the owner of each key on standard input, as libmemcached has it: a digit a key, its index among the servers.
// Usage: libmemcached ketama|ketama_md5|ketama_weighted HOST PORT WEIGHT [HOST PORT WEIGHT ...]
// Build: cc -o libmemcached libmemcached.c -lmemcached
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  memcached_st *m = memcached_create(NULL);
  int weighted = strcmp(argv[1], "ketama_weighted") == 0;
  memcached_behavior_set(m, weighted ? MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED : MEMCACHED_BEHAVIOR_KETAMA, 1);
  if (strcmp(argv[1], "ketama_md5") == 0) memcached_behavior_set(m, MEMCACHED_BEHAVIOR_HASH, MEMCACHED_HASH_MD5);
  for (int i = 2; i + 2 < argc; i += 3)
    memcached_server_add_with_weight(m, argv[i], atoi(argv[i + 1]), atoi(argv[i + 2]));
  char key[300];
  while (fgets(key, sizeof key, stdin)) {
    key[strcspn(key, "\n")] = 0;
    printf("%u", memcached_generate_hash(m, key, strlen(key)));
  }
  memcached_free(m);
  return 0;
}
