/* Fails three times. */
#include "check.h"

int main(void) {
    int ntasks;
    CHECK(open_tasks("missing.sion", "br", &ntasks, NULL) == -1);
    CHECK(sion_last_error() == SION_ERR_IO && sion_last_errno() == 2);
    CHECK(strstr(sion_last_error_text(), "No such file") != NULL);
    CHECK(sion_last_error_rank() == -1);
    CHECK(sion_feof(3) == -1 && !sion_close(3) && sion_last_error() == SION_ERR_HANDLE);
    return 0;
}
